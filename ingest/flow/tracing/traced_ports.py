"""The ports of a worker that traces. Each passes calls on, and records a span for the deliveries that are traced."""

from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ingest.domain.deliveries.delivery import Abandoned, DeadReason, Delivery, EntryRef, RetryReason
from ingest.domain.deliveries.result import Finished
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.trace_context import is_sampled
from ingest.flow.ports import Reading, Settling
from ingest.flow.tracing.delivery_traces import DeliveryTraces
from ingest.telemetry.tracing.port import Tracing, error_of

Decoded_co = TypeVar("Decoded_co", covariant=True)


class TracedReading:
    """Begins the traces of deliveries, see `Reading`."""

    def __init__(self, reading: Reading, traces: DeliveryTraces) -> None:
        self._reading = reading
        self._traces = traces

    @property
    def may_own_more(self) -> bool:
        """See `Reading`."""
        return self._reading.may_own_more

    async def read(self, count: int, block: float) -> list[Delivery]:
        """See `Reading`."""
        return self._begun(await self._reading.read(count, block))

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """See `Reading`."""
        return self._begun(await self._reading.claim_own(count, known, counted=counted))

    async def claim_abandoned(self, count: int) -> Abandoned:
        """See `Reading`."""
        found = await self._reading.claim_abandoned(count)
        return Abandoned(self._begun(found.released), self._begun(found.dead))

    def _begun(self, deliveries: list[Delivery]) -> list[Delivery]:
        begin = self._traces.begin
        return [begin(delivery) for delivery in deliveries]


class Decoding(Protocol[Decoded_co]):
    """Decodes documents to one kind of orders, see `Decode`."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Decoded_co, ...]:
        """See `Decode`."""

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """See `Decode`."""


class TracedDecode(Generic[Decoded_co]):
    """Records how a document becomes an order, see `Decode`."""

    def __init__(self, decode: Decoding[Decoded_co], tracing: Tracing) -> None:
        self._decode = decode
        self._tracing = tracing

    def decode(self, body: bytes, request: FetchRequest) -> Coroutine[Any, Any, tuple[Decoded_co, ...]]:
        """See `Decode`."""
        if request.traceparent is None or not is_sampled(request.traceparent):
            return self._decode.decode(body, request)
        return self._traced(body, request, request.traceparent)

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """See `Decode`."""
        await self._decode.check(body, request)

    async def _traced(self, body: bytes, request: FetchRequest, context: str) -> tuple[Decoded_co, ...]:
        span = self._tracing.start("map", parent=context)
        try:
            orders = await self._decode.decode(body, request)
        except BaseException as error:
            span.end(error_of(error))
            raise
        span.end()
        return orders


class TracedSettling:
    """Records the end of deliveries, see `Settling`."""

    def __init__(self, settling: Settling, traces: DeliveryTraces) -> None:
        self._settling = settling
        self._traces = traces
        self.keeps_results = settling.keeps_results

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """See `Settling`."""
        with self._traces.settling("ack", entries) as traced:
            acked = await self._settling.ack(entries)
        for each in traced:
            each.outcome = "stored"
        return acked

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """See `Settling`."""
        with self._traces.settling("ack", [each.entry for each in finished]) as traced:
            acked = await self._settling.ack_with_results(finished)
        for each in traced:
            each.outcome = "stored"
        return acked

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """See `Settling`."""
        with self._traces.settling("schedule retry", [delivery.entry]) as traced:
            moved = await self._settling.reschedule(delivery, after, attempt, reason, error)
        for each in traced:
            if moved:
                each.outcome, each.error = "retried", error
        return moved

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """See `Settling`."""
        with self._traces.settling("dead-letter", [delivery.entry]) as traced:
            moved = await self._settling.dead_letter(delivery, reason, error)
        for each in traced:
            if moved:
                each.outcome, each.error = "dead", error
        return moved

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """See `Settling`. Released deliveries may not be held, so that their traces end here."""
        with self._traces.settling("release", [delivery.entry for delivery in deliveries]) as traced:
            released = await self._settling.release(deliveries)
        for each in traced:
            each.outcome = "released"
            self._traces.end(each.delivery)
        return released
