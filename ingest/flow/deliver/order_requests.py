"""Requests orders that no delivery contains, within the limits for the orders of deliveries.

If the process dies here, the caller has stored nothing, and may request the orders again.
"""

import asyncio
from collections.abc import Callable

from ingest.domain.errors import NotSent, ThrottledFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Fetched
from ingest.domain.orders.plain_order import StorableOrder
from ingest.flow.deliver.gate import Gate
from ingest.flow.pace.pace import Pace
from ingest.flow.ports import Decode, Upstream

# Seconds after a request that was not sent, or was throttled.
_PAUSE = 0.5


class OrderRequests:
    """Requests one order at a time.

    Args:
        upstream: obeys the quota and the pauses of the source.
        decode: decodes documents.
        gate: admits requests.
        pace: of the source.
    """

    def __init__(self, upstream: Upstream, decode: Decode, gate: Gate, pace: Pace) -> None:
        self._upstream = upstream
        self._decode = decode
        self._gate = gate
        self._pace = pace

    async def fetch(self, order_id: str, on_wait: Callable[[str], None]) -> tuple[StorableOrder, ...]:
        """Request an order, and return the orders that a worker would store.

        While the source is paused, throttled or unavailable, this waits, and calls `on_wait` with the reason.

        Raises:
            Fault: the order cannot be fetched. The circuit breaker does not count this failure, because no delivery has failed.
            InvalidDocument, TransformFailed: see `Decode`.
        """
        # Alone, so that its failure is not the failure of orders in deliveries.
        request = FetchRequest(order_id, together=1)
        while True:
            await self._gate.admit_undelivered(on_wait)
            result = await self._upstream.fetch(request)
            if isinstance(result, Fetched):
                return await self._decode.decode(result.body, request)
            fault = result.fault
            if isinstance(fault, ThrottledFault):
                self._pace.record_throttle(fault.after, result.exchange.started_at, str(fault))
            elif not (isinstance(fault, NotSent) or self._gate.is_closed):
                raise fault
            on_wait(str(fault))
            await asyncio.sleep(_PAUSE)
