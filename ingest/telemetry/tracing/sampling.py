"""Which orders are traced: a share of them, by their IDs.

Every process decides the same for an order, so that a queue entry needs no field for an order that is not traced, and a worker begins a
trace exactly for the orders that their producer would have traced.
"""

from zlib import crc32

_RANGE = 1 << 32
# Fibonacci hashing. Without it, the traced orders would be in the same partitions, which are chosen by the CRC-32 as well.
_FACTOR = 2_654_435_769


class OrderSampling:
    """Takes a share of the orders.

    Args:
        share: from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._below = round(share * _RANGE)

    def takes(self, order_id: str) -> bool:
        """Return whether this order is traced."""
        return crc32(order_id.encode()) * _FACTOR % _RANGE < self._below
