"""The traces of deliveries, with a tracing that only records its input."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.held import Held
from ingest.flow.tracing.delivery_traces import DeliveryTraces
from ingest.telemetry.tracing.port import Attributes, Kind

SAMPLED = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class NotedSpan:
    name: str
    parent: str | None
    traceparent: str
    began_at: float | None
    notes: dict[str, str | int] = field(default_factory=dict)
    steps: list[tuple[str, float, float]] = field(default_factory=list)
    ended: list[tuple[str, float | None]] = field(default_factory=list)

    def note(self, name: str, value: str | int) -> None:
        self.notes[name] = value

    def step(self, name: str, began_at: float, ended_at: float, error: str = "", link: str | None = None) -> None:
        del error, link
        self.steps.append((name, began_at, ended_at))

    def end(self, error: str = "", at: float | None = None) -> None:
        self.ended.append((error, at))


class NotedTracing:
    """Takes every order whose ID begins with `t`."""

    def __init__(self) -> None:
        self.spans: list[NotedSpan] = []

    def takes(self, order_id: str) -> bool:
        return order_id.startswith("t")

    def start(
        self,
        name: str,
        kind: Kind = "internal",
        parent: str | None = None,
        attributes: Attributes | None = None,
        links: Sequence[str] = (),
        at: float | None = None,
    ) -> NotedSpan:
        del kind, attributes, links
        span = NotedSpan(name, parent, f"00-{'0' * 32}-{len(self.spans):016x}-01", at)
        self.spans.append(span)
        return span


def delivery(order_id: str, **fields: bytes) -> Delivery:
    given = {name.encode(): value for name, value in fields.items()}
    return Delivery(EntryRef("stream", "5000-0"), order_id, 5.0, 1, 1, None, given)


def test_an_entry_without_a_context_begins_a_trace_if_its_order_is_taken() -> None:
    tracing = NotedTracing()
    traces = DeliveryTraces(tracing, now=lambda: 7.0)

    untouched, traced = traces.begin(delivery("other")), traces.begin(delivery("taken"))

    assert untouched.fields == {}
    [deliver] = tracing.spans
    assert traced.traceparent() == deliver.traceparent
    assert (deliver.parent, deliver.began_at) == (None, 5.0)
    assert deliver.steps == [("queue wait", 5.0, 7.0)]


def test_the_context_of_an_entry_decides_before_its_order_does() -> None:
    tracing = NotedTracing()
    traces = DeliveryTraces(tracing)

    sampled = traces.begin(delivery("other", traceparent=SAMPLED))
    not_sampled = traces.begin(delivery("taken", traceparent=SAMPLED[:-1] + b"0"))
    invalid = traces.begin(delivery("taken", traceparent=b"anything"))

    assert tracing.spans[0].parent == SAMPLED.decode()
    assert sampled.fields != {b"traceparent": SAMPLED}
    assert not_sampled.fields == {b"traceparent": SAMPLED[:-1] + b"0"}
    assert invalid.fields == {b"traceparent": b"anything"}
    assert [span.name for span in tracing.spans] == ["deliver"]


def test_an_entry_that_redis_has_added_in_the_future_has_not_waited() -> None:
    tracing = NotedTracing()

    DeliveryTraces(tracing, now=lambda: 4.0).begin(delivery("taken"))

    assert tracing.spans[0].steps == [("queue wait", 4.0, 4.0)]


async def test_a_delivery_that_another_process_claims_ends_as_lost() -> None:
    tracing = NotedTracing()
    held = Held(traces=DeliveryTraces(tracing))
    traced = held.traces.begin(delivery("taken"))
    task = asyncio.create_task(asyncio.sleep(3_600))
    held.add(traced, task)

    held.lose([traced.entry])

    assert tracing.spans[0].notes == {"ingest.outcome": "lost"}
    assert len(tracing.spans[0].ended) == 1


async def test_an_earlier_delivery_of_an_entry_does_not_end_the_trace_of_the_next() -> None:
    tracing = NotedTracing()
    held = Held(traces=DeliveryTraces(tracing))
    tasks = [asyncio.create_task(asyncio.sleep(3_600)) for _ in range(2)]
    held.add(held.traces.begin(delivery("taken")), tasks[0])

    held.add(held.traces.begin(delivery("taken")), tasks[1])

    assert tracing.spans[1].ended == []
