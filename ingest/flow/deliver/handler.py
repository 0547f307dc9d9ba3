"""Decides the outcome of a delivery. Writes nothing."""

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from ingest.domain.deliveries.delivery import DeadReason, Delivery, RetryReason
from ingest.domain.deliveries.outcome import DeadLetter, Outcome, Release, Retry, retry_delay
from ingest.domain.errors import (
    NotSent,
    PermanentFault,
    PostponedFault,
    ThrottledFault,
    TransformFailed,
    TransientFault,
)
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.response_shape import shape_of
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.clean_json import clean_json, ignored
from ingest.domain.orders.order import InvalidDocument, TruncatedDocument
from ingest.flow.circuit.breaker import CircuitBreaker, FaultOf
from ingest.flow.deliver.document_reader import DocumentReader
from ingest.flow.deliver.expected_version import ExpectedVersions
from ingest.flow.pace.pace import Pace
from ingest.flow.ports import Upstream

# Seconds until the next try of an order that could not be requested for a local reason.
_CLIENT_DELAY = 5.0

Fetch = Callable[[FetchRequest], Awaitable[Fetched | Failed]]


class AttemptLimits(msgspec.Struct, frozen=True):
    """How often an order may fail.

    Attributes:
        attempts: failed attempts, then it is dead-lettered.
        deliveries: deliveries counted by Redis, then it is a poison message.
    """

    attempts: int
    deliveries: int


class _Request(msgspec.Struct, frozen=True):
    """The way in which an order is requested.

    Attributes:
        together: the most orders in the request. 0 for the usual number.
        is_repeated: whether an earlier response would have dead-lettered it.
    """

    together: int = 0
    is_repeated: bool = False


_FIRST = _Request()


def not_recorded(_: float) -> None:
    """Return no seconds, because no history is kept."""


class Handler:
    """Fetches the order of a delivery, checks it, and returns the outcome.

    Args:
        on_replaced: called for each pushed document in which characters were replaced, see `clean_json`.
        on_outdated: see `ExpectedVersions`.
        since: returns the seconds since a request began, by the clock of `Exchange.started_at`, if they are recorded.
    """

    def __init__(
        self,
        upstream: Upstream,
        documents: DocumentReader,
        limits: AttemptLimits,
        circuit: CircuitBreaker,
        pace: Pace,
        *,
        draw: Callable[[float, float], float] = random.uniform,
        on_replaced: Callable[[], None] = ignored,
        on_outdated: Callable[[], None] = ignored,
        since: Callable[[float], float | None] = not_recorded,
    ) -> None:
        self._on_replaced = on_replaced
        self._since = since
        self._upstream = upstream
        self._documents = documents
        self._limits = limits
        self._circuit = circuit
        self._pace = pace
        self._draw = draw
        self._expected = ExpectedVersions(draw, on_outdated)

    def handle(self, delivery: Delivery) -> Coroutine[Any, Any, Outcome]:
        """Return the outcome of a delivery. It may be cancelled or killed at any point, because it writes nothing."""
        return self._decide(delivery, self._upstream.fetch)

    def probe(self, delivery: Delivery) -> Coroutine[Any, Any, Outcome]:
        """As `handle`, with a single request, although the circuit is open."""
        return self._decide(delivery, self._upstream.fetch_once)

    async def _decide(self, delivery: Delivery, fetch: Fetch, this: _Request = _FIRST) -> Outcome:
        if delivery.order_id is None:
            return DeadLetter(DeadReason.INVALID_MESSAGE, "the entry has no valid order_id")
        if delivery.count > self._limits.deliveries:
            # Counted by Redis, because a message that kills its worker records no attempt.
            return DeadLetter(DeadReason.MAX_DELIVERIES, f"delivered {delivery.count - 1} times and never settled")
        if delivery.document is not None:
            return await self._read_pushed(delivery, delivery.document)
        request = delivery.request(delivery.order_id, this.together)
        result = await fetch(request)
        took = self._since(result.exchange.started_at)
        if isinstance(result, Failed):
            return _timed(await self._after_failed(delivery, request, result, this), took)
        outcome: Outcome
        try:
            outcome = store = await self._documents.read(result.body, request, result.requested_at)
            if (retry := self._expected.after_document(delivery, store)) is not None:
                self._documents.drop(store)
                outcome = retry
        except TransformFailed as error:
            outcome = DeadLetter(DeadReason.TRANSFORM_FAILED, str(error))
        except InvalidDocument as error:
            failed = Failed(_fault_of(error, result.body), result.exchange)
            return _timed(await self._after_failed(delivery, request, failed, this), took)
        self._record_response(request, result)
        # A valid document proves that the API works, even if the transform has failed for it.
        self._circuit.record_success(request, result.exchange.started_at)
        return _timed(outcome, took)

    async def _read_pushed(self, delivery: Delivery, document: bytes) -> Outcome:
        request, at = delivery.request(str(delivery.order_id)), delivery.pushed_at()
        document = clean_json(document, self._on_replaced)
        try:
            store = await self._documents.read(document, request, at)
        except TransformFailed as error:
            return DeadLetter(DeadReason.TRANSFORM_FAILED, str(error))
        except InvalidDocument as error:
            return DeadLetter(DeadReason.INVALID_ORDER, str(error))
        event_at = delivery.event_at()
        if event_at is not None and all(order.updated_at is not None for order in store.orders):
            # Within one version, the order of events decides. It never replaces a missing version, because clocks differ.
            return msgspec.structs.replace(store, fetched_at=event_at)
        return store

    def _record_response(self, request: FetchRequest, result: Fetched | Failed) -> None:
        """Note that the API does not throttle, once for all orders of a request."""
        if result.exchange.requests[0].order_id == request.order_id:
            self._pace.record_success()

    async def _after_failed(self, delivery: Delivery, request: FetchRequest, failed: Failed, this: _Request) -> Outcome:
        fault = failed.fault
        if isinstance(fault, NotSent):
            return Release(str(fault))
        if isinstance(fault, PostponedFault) or (isinstance(fault, PermanentFault) and fault.is_configured):
            self._record_response(request, failed)
            return await self._after_configured(delivery, failed, this)
        after = 0.0
        if isinstance(fault, ThrottledFault):
            after = self._pace.record_throttle(fault.after, failed.exchange.started_at, str(fault))
        try:
            fault_of = await self._circuit.classify(failed.exchange, fault)
        except NotSent as stopped:
            return Release(str(stopped))
        if fault_of is FaultOf.API:
            return Release(str(fault))
        if isinstance(fault, ThrottledFault):
            return Retry(after, delivery.attempt, fault.retry_reason, str(fault))
        self._record_response(request, failed)
        return await self._after_own_fault(delivery, failed, this)

    async def _after_own_fault(self, delivery: Delivery, failed: Failed, this: _Request) -> Outcome:
        """The outcome of an order while the API works for others."""
        fault = failed.fault
        if not fault.uses_attempt:
            # Neither the order nor the API is at fault, so that no attempt counts.
            delay = self._draw(_CLIENT_DELAY, 2 * _CLIENT_DELAY)
            return Retry(delay, delivery.attempt, fault.retry_reason, str(fault))
        if failed.is_shared and fault.reached:
            return await self._isolate(delivery, failed, this)
        if isinstance(fault, PermanentFault):
            return await self._after_permanent(delivery, fault, this)
        return self._after_failure(delivery, fault.retry_reason, str(fault))

    async def _after_permanent(self, delivery: Delivery, fault: PermanentFault, this: _Request) -> Outcome:
        """Dead-letter the order if it has received such a response twice, each time with evidence that the API works for others.

        A single response is not enough, because the API may have failed for a moment.
        """
        if this.is_repeated or (fault.reason is DeadReason.NOT_FOUND and delivery.expected_version() is not None):
            return self._after_rejection(delivery, fault)
        return await self._decide(delivery, self._upstream.fetch, _Request(this.together, is_repeated=True))

    async def _after_configured(self, delivery: Delivery, failed: Failed, this: _Request) -> Outcome:
        """Apply a response that concerns the order by configuration, and needs no evidence."""
        fault = failed.fault
        if failed.is_shared:
            return await self._isolate(delivery, failed, this)
        if isinstance(fault, PermanentFault):
            return self._after_rejection(delivery, fault)
        after = fault.after if isinstance(fault, PostponedFault) else None
        return self._after_failure(delivery, fault.retry_reason, str(fault), after)

    def _after_rejection(self, delivery: Delivery, fault: PermanentFault) -> Outcome:
        """Dead-letter the order, unless it exists elsewhere and may be found in a moment."""
        retry = None
        if fault.reason is DeadReason.NOT_FOUND:
            retry = self._expected.after_not_found(delivery, str(fault))
        return retry or DeadLetter(fault.reason, str(fault))

    async def _isolate(self, delivery: Delivery, failed: Failed, this: _Request) -> Outcome:
        """Fetch the order together with half of the others, because one of them has made the request fail."""
        together = max(1, len(failed.exchange.requests) // 2)
        return await self._decide(delivery, self._upstream.fetch, _Request(together, this.is_repeated))

    def _after_failure(
        self, delivery: Delivery, reason: RetryReason, error: str, after: float | None = None
    ) -> Outcome:
        if delivery.attempt >= self._limits.attempts:
            return DeadLetter(DeadReason.ATTEMPTS_EXHAUSTED, error)
        delay = retry_delay(delivery.attempt, self._draw) if after is None else after
        return Retry(delay, delivery.attempt + 1, reason, error)


def _timed(outcome: Outcome, took: float | None) -> Outcome:
    """The outcome with the seconds of its request, unless a later request has decided it."""
    if took is None or isinstance(outcome, Release) or outcome.took is not None:
        return outcome
    return msgspec.structs.replace(outcome, took=took)


def _fault_of(error: InvalidDocument, body: bytes) -> TransientFault | PermanentFault:
    """The fault for a response whose document is invalid."""
    if isinstance(error, TruncatedDocument):
        # A response without a length ends with its connection, possibly too early.
        return TransientFault(str(error), reason=RetryReason.TRUNCATED)
    return PermanentFault(DeadReason.INVALID_ORDER, str(error), shape=shape_of(body))
