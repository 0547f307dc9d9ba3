"""Sends one HTTP request for several orders, and finds the result of each of them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import Fault, NoContent, PermanentFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order_id import SEPARATOR
from ingest.upstream.bulk.bulk_response import CHECK, UNRELATED, BulkResponseReader, Listed
from ingest.upstream.bulk.bulk_waiting import WaitingCall

Fetch = Callable[[FetchRequest], Awaitable[Fetched | Failed]]


class BulkResponse:
    """The divided response to one request. `limit` is the most bytes of a document."""

    def __init__(self, exchange: Exchange, fetched: Fetched, listed: Listed, limit: int) -> None:
        self._exchange = exchange
        self._asked_at = fetched.requested_at
        self._documents = listed.documents
        self._nameless = listed.nameless
        self._limit = limit
        self._is_single = len(exchange.requests) == 1
        self._has_any = any(request.order_id in listed.documents for request in exchange.requests)
        # A single document without a readable ID may be the requested one.
        is_alone = self._is_single and not listed.documents and len(listed.nameless) == 1
        self._alone = listed.nameless[0] if is_alone else None
        self._is_unrelated = bool(listed.documents or listed.nameless) and not self._has_any

    def of(self, order_id: str) -> Fetched | Failed | None:
        """The result for an order, or None if it should be requested again without the orders in the response.

        A response may have been cut to a page, so that a missing order may exist.
        """
        # The decoder reports the error in a document without a readable ID.
        document = self._documents.get(order_id, self._alone)
        if document is not None:
            return self._checked(document)
        if self._is_unrelated and "," in order_id:
            error = "the list endpoint takes an ID with a comma for several IDs"
            return Failed(PermanentFault(DeadReason.NOT_FOUND, error), self._exchange)
        if self._is_unrelated:
            return Failed(TransientFault(f"{UNRELATED}: {CHECK}"), self._exchange, is_shared=not self._is_single)
        if self._nameless:
            error = "a document of the response has no readable ID"
            return Failed(PermanentFault(DeadReason.INVALID_ORDER, error), self._exchange, is_shared=True)
        if self._has_any:
            return None
        error = "the response of the list endpoint does not contain it"
        return Failed(PermanentFault(DeadReason.NOT_FOUND, error), self._exchange)

    def _checked(self, document: bytes) -> Fetched | Failed:
        if len(document) <= self._limit:
            return Fetched(document, self._asked_at, self._exchange)
        error = f"the document is larger than {self._limit} bytes"
        return Failed(PermanentFault(DeadReason.INVALID_ORDER, error), self._exchange)


async def request_together(
    requests: Sequence[FetchRequest], fetch: Fetch, reader: BulkResponseReader, limit: int
) -> BulkResponse | Failed:
    """Request these orders together, and return the result of each order or a failure that they share.

    `fetch` fetches the URL of a list, with the IDs separated by `SEPARATOR`. `limit` is the most bytes of a document.
    """
    result = await fetch(_joined(requests))
    exchange = Exchange(tuple(requests), result.exchange.started_at)
    fault: Fault
    if isinstance(result, Failed) and isinstance(result.fault, NoContent):
        fault = PermanentFault(DeadReason.NOT_FOUND, f"the list endpoint sends an empty list ({result.fault})")
    elif isinstance(result, Failed):
        fault = result.fault
    else:
        try:
            return BulkResponse(exchange, result, reader.read(result.body), limit)
        except Fault as unreadable:
            # Its traceback would keep the response in memory.
            fault = unreadable.with_traceback(None)
    return Failed(fault, exchange, is_shared=len(requests) > 1)


class Flight:
    """The calls of one HTTP request, which is cancelled when all callers have left.

    Attributes:
        requests: of the calls, one for each order.
        is_counted: whether it holds up others.
        task: sends it.
    """

    def __init__(self, calls: Sequence[WaitingCall], send: Callable[["Flight"], Coroutine[Any, Any, None]]) -> None:
        self._calls = calls
        self.requests = tuple({call.request.order_id: call.request for call in calls}.values())
        self.is_counted = True
        self.task = asyncio.create_task(send(self))
        for call in calls:
            call.ended.add_done_callback(self._leave)

    def deliver(self, response: BulkResponse | Failed) -> list[WaitingCall]:
        """End the calls, and return the calls that are missing from the response."""
        missing = []
        for call in self._calls:
            result = response if isinstance(response, Failed) else response.of(call.request.order_id)
            if result is None:
                missing.append(call)
            else:
                call.end(result)
        return missing

    def fail(self, bug: Exception) -> None:
        """End the calls with an exception."""
        for call in self._calls:
            if not call.ended.done():
                call.ended.set_exception(bug)

    def cancel(self) -> None:
        """Cancel the calls."""
        for call in self._calls:
            call.ended.cancel()

    def _leave(self, _: "asyncio.Future[Fetched | Failed]") -> None:
        if all(call.ended.done() for call in self._calls):
            self.task.cancel()


def _joined(requests: Sequence[FetchRequest]) -> FetchRequest:
    """The orders as one, with their trace context if all of them share it."""
    first = requests[0]
    if len(requests) == 1:
        return first
    order_ids = SEPARATOR.join([request.order_id for request in requests])
    contexts = {request.traceparent for request in requests}
    if len(contexts) == 1:
        return FetchRequest(order_ids, traceparent=first.traceparent)
    return FetchRequest(order_ids, linked=tuple(context for context in contexts if context is not None))
