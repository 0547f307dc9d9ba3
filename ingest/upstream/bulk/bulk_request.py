"""Sends one HTTP request for several orders, and says what became of each of them."""

import time
from collections.abc import Awaitable, Callable, Sequence

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import Fault, PermanentFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, Fetched, FetchRequest
from ingest.upstream.bulk.bulk_answer import CHECK, UNRELATED, AnswerReader, Listed

Fetch = Callable[[FetchRequest], Awaitable[Fetched]]
Outcome = Fetched | Fault | None


class Answer:
    """The answer to one request, divided.

    Args:
        exchange: the request.
        fetched: all that was sent.
        listed: the documents in it.
        limit: most bytes of a document.
    """

    def __init__(self, exchange: Exchange, fetched: Fetched, listed: Listed, limit: int) -> None:
        self._exchange = exchange
        self._asked_at = fetched.requested_at
        self._documents = listed.documents
        self._nameless = listed.nameless
        self._limit = limit
        self._is_single = len(exchange.requests) == 1
        self._has_any = any(request.order_id in listed.documents for request in exchange.requests)
        # A single document without a readable ID may be the single one that was requested.
        is_alone = self._is_single and not listed.documents and len(listed.nameless) == 1
        self._alone = listed.nameless[0] if is_alone else None
        self._is_unrelated = bool(listed.documents or listed.nameless) and not self._has_any

    def of(self, order_id: str) -> Outcome:
        """What became of an order; None if it should be requested again without those that the answer had.

        An answer may have been cut to a page, so what is missing need not be what does not exist.
        """
        # It is for the decoder to say what is wrong with one that has no readable ID.
        document = self._documents.get(order_id, self._alone)
        if document is not None:
            return self._checked(document)
        if self._is_unrelated:
            unrelated = TransientFault(f"{UNRELATED}: {CHECK}")
            unrelated.is_shared = not self._is_single
            return self._in_exchange(unrelated)
        if self._nameless:
            fault = PermanentFault(DeadReason.INVALID_ORDER, "a document of the answer has no readable ID")
            fault.is_shared = True
            return self._in_exchange(fault)
        if self._has_any:
            return None
        return self._in_exchange(
            PermanentFault(DeadReason.NOT_FOUND, "the answer of the list endpoint does not have it")
        )

    def _checked(self, document: bytes) -> Outcome:
        if len(document) <= self._limit:
            return Fetched(document, self._asked_at, self._exchange)
        error = f"the document is larger than {self._limit} bytes"
        return self._in_exchange(PermanentFault(DeadReason.INVALID_ORDER, error))

    def _in_exchange(self, fault: Fault) -> Fault:
        fault.exchange = self._exchange
        return fault


class Requester:
    """Sends requests for several orders.

    Args:
        reader: divides the answers.
        limit: most bytes of a document.
        clock: monotonic seconds, those of the circuit breaker.
    """

    def __init__(self, reader: AnswerReader, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._limit = limit
        self._clock = clock

    async def request(self, requests: Sequence[FetchRequest], fetch: Fetch) -> Answer:
        """Request these orders together.

        Args:
            requests: one for each order.
            fetch: fetches what is at the URL of a list; the IDs are separated by commas.

        Raises:
            Fault: the request has failed for all of them.
        """
        started_at = self._clock()
        exchange = Exchange(tuple(requests), started_at)
        try:
            fetched = await fetch(_joined(requests))
            return Answer(exchange, fetched, self._reader.read(fetched.body), self._limit)
        except Fault as fault:
            if fault.exchange is not None:
                # The last of the immediate tries.
                exchange.started_at = fault.exchange.started_at
            fault.exchange = exchange
            fault.is_shared = len(requests) > 1
            raise


def _joined(requests: Sequence[FetchRequest]) -> FetchRequest:
    """The orders as one, with their trace context if all of them share it."""
    first = requests[0]
    if len(requests) == 1:
        return first
    is_shared = all(request.traceparent == first.traceparent for request in requests)
    order_ids = ",".join([request.order_id for request in requests])
    return FetchRequest(order_ids, traceparent=first.traceparent if is_shared else None)
