"""Earlier states of the orders of a simulated shop, which replicas and indexes still show."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from ingest.lab.shops.orders import ShopOrder

_KEPT = timedelta(hours=2)  # longer than any lag


class ShopHistory:
    """For each order its earlier states, with the time at which each ended. None is the state before an order existed."""

    def __init__(self) -> None:
        self._ended: defaultdict[int, list[tuple[datetime, ShopOrder | None]]] = defaultdict(list)

    def note(self, number: int, before: ShopOrder | None, now: datetime) -> None:
        """Record the state of an order that ends now."""
        ended = self._ended[number]
        while ended and ended[0][0] < now - _KEPT:
            ended.pop(0)
        ended.append((now, None if before is None else replace(before)))

    def at(self, number: int, moment: datetime, current: ShopOrder | None) -> ShopOrder | None:
        """Return the state of an order at a time, or None if it did not exist."""
        for until, state in self._ended.get(number, ()):
            if moment < until:
                return state
        return current

    def numbers(self) -> Iterable[int]:
        """Return the numbers of all orders that have changed, including deleted ones."""
        return self._ended.keys()
