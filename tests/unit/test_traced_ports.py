"""The ports of a worker that traces pass every call on, and record its step in the traces."""

from collections.abc import Sequence

import pytest
from test_delivery_traces import SAMPLED, NotedTracing, delivery

from ingest.domain.deliveries.delivery import Abandoned, DeadReason, Delivery, EntryRef, RetryReason
from ingest.domain.deliveries.result import Finished
from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.exchange import FetchRequest
from ingest.flow.tracing.delivery_traces import DeliveryTraces
from ingest.flow.tracing.traced_ports import TracedDecode, TracedReading, TracedSettling


class OneEntry:
    """Reads one traced entry, and settles everything unless it is unavailable."""

    keeps_results = True

    def __init__(self) -> None:
        self.is_available = True

    async def read(self, count: int, block: float) -> list[Delivery]:
        del count, block
        return [delivery("taken")]

    async def claim_own(self, count: int, known: object, *, counted: bool = True) -> list[Delivery]:
        del count, known, counted
        return [delivery("taken")]

    async def claim_abandoned(self, count: int) -> Abandoned:
        del count
        return Abandoned([delivery("taken")], [delivery("other")])

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        if not self.is_available:
            raise QueueUnavailable("connection refused")
        return len(entries)

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        return len(finished)

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        del delivery, after, attempt, reason, error
        return True

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        del delivery, reason, error
        return True

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        return len(deliveries)


class Decoding:
    async def decode(self, body: bytes, request: FetchRequest) -> tuple[str, ...]:
        if body == b"invalid":
            raise ValueError(request.order_id)
        return (body.decode(),)

    async def check(self, body: bytes, request: FetchRequest) -> None:
        await self.decode(body, request)


class Traced:
    def __init__(self) -> None:
        self.tracing, self.queue = NotedTracing(), OneEntry()
        self.traces = DeliveryTraces(self.tracing, now=lambda: 7.0)
        self.reading = TracedReading(self.queue, self.traces)
        self.settling = TracedSettling(self.queue, self.traces)

    async def read(self) -> Delivery:
        [found] = await self.reading.read(1, 0.0)
        return found

    def steps(self) -> list[str]:
        return [name for name, _, _ in self.tracing.spans[-1].steps]


async def test_every_way_to_read_begins_the_traces_of_its_deliveries() -> None:
    traced = Traced()

    await traced.read()
    await traced.reading.claim_own(1, ())
    found = await traced.reading.claim_abandoned(1)

    assert [span.name for span in traced.tracing.spans] == ["deliver"] * 3
    assert b"traceparent" in found.released[0].fields
    assert b"traceparent" not in found.dead[0].fields


@pytest.mark.parametrize(
    ("step", "outcome", "error"),
    [("ack", "stored", ""), ("schedule retry", "retried", "late"), ("dead-letter", "dead", "gone")],
)
async def test_the_end_of_a_delivery_is_a_step_of_its_trace(step: str, outcome: str, error: str) -> None:
    traced = Traced()
    found = await traced.read()

    if step == "ack":
        assert await traced.settling.ack([found.entry]) == 1
    elif step == "schedule retry":
        assert await traced.settling.reschedule(found, 1.0, 2, None, error)
    else:
        assert await traced.settling.dead_letter(found, DeadReason.NOT_FOUND, error)
    traced.traces.end(found)

    [span] = traced.tracing.spans
    assert traced.steps() == ["queue wait", step]
    assert (span.notes, span.ended) == ({"ingest.outcome": outcome}, [(error, None)])


async def test_a_release_ends_the_trace_and_results_are_acked_as_well() -> None:
    traced = Traced()
    found = await traced.read()

    assert await traced.settling.release([found]) == 1
    assert await traced.settling.ack_with_results([]) == 0

    assert traced.settling.keeps_results
    assert traced.tracing.spans[0].notes == {"ingest.outcome": "released"}


async def test_a_failed_ack_is_a_step_and_may_be_repeated() -> None:
    traced = Traced()
    found = await traced.read()
    traced.queue.is_available = False

    with pytest.raises(QueueUnavailable):
        await traced.settling.ack([found.entry])
    traced.queue.is_available = True
    await traced.settling.ack([found.entry])

    assert traced.steps() == ["queue wait", "ack", "ack"]


async def test_a_document_of_a_traced_order_is_mapped_in_a_span() -> None:
    tracing = NotedTracing()
    decode = TracedDecode(Decoding(), tracing)
    sampled = FetchRequest("A", traceparent=SAMPLED.decode())

    assert await decode.decode(b"plain", FetchRequest("A")) == ("plain",)
    assert await decode.decode(b"traced", sampled) == ("traced",)
    with pytest.raises(ValueError, match="A"):
        await decode.decode(b"invalid", sampled)
    await decode.check(b"fine", sampled)

    assert [span.name for span in tracing.spans] == ["map", "map"]
    assert [bool(error) for span in tracing.spans for error, _ in span.ended] == [False, True]
