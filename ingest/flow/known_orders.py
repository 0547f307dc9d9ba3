"""Remembers orders that the external API has delivered. A canary request for one of them shows whether the API works."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import Fault, PermanentFault, Unavailable
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed
from ingest.domain.orders.order import InvalidDocument
from ingest.flow.ports import Decode, Upstream

# Canary requests for one decision. One is not enough, because an order may have been deleted since it was delivered.
_MOST = 3
# The same order may be delivered several times in a row.
_REMEMBERED = 8
# The decision about the external API must not wait for PostgreSQL, which may be unavailable as well.
_LONGEST_LOOKUP = 2.0


class KnownOrders:
    """The last orders that this process has received, or stored orders if it has received none.

    Args:
        stored: returns IDs of stored orders, at most as many as requested. Raises `Unavailable`.
    """

    def __init__(self, stored: Callable[[int], Awaitable[Sequence[str]]]) -> None:
        self._stored = stored
        self._latest: deque[FetchRequest] = deque(maxlen=_REMEMBERED)
        self.add = self._latest.append

    async def candidates(self, failing: Collection[str] = ()) -> list[FetchRequest]:
        """Up to three orders for canary requests, the latest first, without those that are `failing`."""
        found = {request.order_id: request for request in reversed(self._latest)}
        if len(found.keys() - failing) < _MOST:
            for order_id in await self._look_up(_MOST + len(failing)):
                found.setdefault(order_id, FetchRequest(order_id))
        return [request for order_id, request in found.items() if order_id not in failing][:_MOST]

    async def _look_up(self, count: int) -> Sequence[str]:
        try:
            async with asyncio.timeout(_LONGEST_LOOKUP):
                return await self._stored(count)
        except (TimeoutError, Unavailable):
            return ()


def canary_request(upstream: Upstream, decode: Decode) -> Callable[[FetchRequest], Awaitable[Fault | None]]:
    """Return the function that sends a canary request. It returns None if the response is a valid order."""

    async def request(known: FetchRequest) -> Fault | None:
        # Without the trace context, because the canary request is not part of the trace of that order.
        result = await upstream.fetch_once(FetchRequest(known.order_id))
        if isinstance(result, Failed):
            return result.fault
        try:
            await decode.check(result.body, known)
        except InvalidDocument as error:
            return PermanentFault(DeadReason.INVALID_ORDER, str(error))
        return None

    return request
