"""The external API in memory, which implements `Upstream`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from ingest.domain.errors import Fault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched


async def delivered(fetching: Awaitable[Fetched | Failed]) -> Fetched:
    """Return the document, or raise the fault."""
    result = await fetching
    if isinstance(result, Fetched):
        return result
    fault = result.fault
    try:
        raise fault
    finally:
        del result, fault  # else the traceback and the fault would keep each other


def document(order_id: str, status: str = "placed") -> bytes:
    """A valid order document."""
    return (
        f'{{"id":"{order_id}","status":"{status}","currency":"GBP","placed_at":"2010-12-01T08:26:00Z",'
        '"lines":[{"sku":"85123A","quantity":6,"unit_price":"2.55"}]}'
    ).encode()


def response(
    request: FetchRequest, given: bytes | BaseException, requested_at: datetime, started_at: float = 0.0
) -> Fetched | Failed:
    """The result of a request for which the API sends `given`. Exceptions other than faults are raised."""
    exchange = Exchange((request,), started_at)
    if isinstance(given, Fault):
        return Failed(given, exchange)
    if isinstance(given, BaseException):
        raise given
    return Fetched(given, requested_at, exchange)


class MemoryUpstream:
    """An API that serves every order.

    Attributes:
        clock: Unix seconds.
        fault: the fault of every request, or None for documents.
        faults: the faults of requests for single orders.
        documents: the documents of single orders.
        answers: while this is not set, requests hang.
        hanging: orders whose requests hang until `let_go`.
        latency: seconds for a request.
        requested: the requested orders, with quick tries.
        requested_once: orders of single requests, such as a probe or a canary request.
        in_progress: number of requests that wait for a response.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.fault: BaseException | None = None
        self.faults: dict[str, BaseException] = {}
        self.documents: dict[str, bytes] = {}
        self.answers = asyncio.Event()
        self.answers.set()
        self.hanging: set[str] = set()
        self.latency = 0.0
        self.requested: list[str] = []
        self.requested_once: list[str] = []
        self.in_progress: list[str] = []
        self._let_go = asyncio.Event()

    def let_go(self, *order_ids: str) -> None:
        """Answer the requests for these orders."""
        self.hanging.difference_update(order_ids)
        self._let_go.set()

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        self.requested.append(request.order_id)
        return await self._answer(request)

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        self.requested_once.append(request.order_id)
        return await self._answer(request)

    async def _answer(self, request: FetchRequest) -> Fetched | Failed:
        order_id, started_at = request.order_id, self.clock()
        requested_at = datetime.fromtimestamp(self.clock(), UTC)
        self.in_progress.append(order_id)
        try:
            await asyncio.sleep(self.latency)
            await self.answers.wait()
            while order_id in self.hanging:
                self._let_go.clear()
                await self._let_go.wait()
        finally:
            self.in_progress.remove(order_id)
        fault = self.fault or self.faults.get(order_id)
        given = fault or self.documents.get(order_id, document(order_id))
        return response(request, given, requested_at, started_at)
