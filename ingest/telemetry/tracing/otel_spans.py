"""The spans of OpenTelemetry's SDK, as this service makes them.

The SDK's own tracer takes ten times as long, because samplers, processors and other threads may use its spans while they last. Here a
span becomes a span of the SDK when it ends, and its steps become spans when they are exported, in the thread of the SDK.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from ingest.telemetry.tracing.port import Attributes, Kind

_KINDS: dict[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_SCOPE = InstrumentationScope("order-ingest")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)
_ids = RandomIdGenerator()


class _Step(NamedTuple):
    """A span below another one, until both are exported."""

    name: str
    began_at: float
    ended_at: float
    error: str
    link: str | None


class _Ended(ReadableSpan):
    """A span that has ended.

    Attributes:
        own_context: its context.
        steps: below it.
    """

    own_context: SpanContext
    steps: Sequence[_Step]


class OtelSpan:
    """A span, see `ingest.telemetry.tracing.port.Span`.

    `on_end` exports it, and `resource` describes this process. For the other arguments, see `Tracing.start`.
    """

    __slots__ = (
        "_attributes",
        "_began_at",
        "_kind",
        "_links",
        "_name",
        "_on_end",
        "_parent",
        "_resource",
        "_span_id",
        "_steps",
        "_trace_id",
        "traceparent",
    )

    def __init__(
        self,
        on_end: Callable[[ReadableSpan], None],
        resource: Resource,
        name: str,
        kind: Kind,
        parent: str | None,
        attributes: Attributes | None,
        links: Sequence[str],
        at: float | None,
    ) -> None:
        self._on_end = on_end
        self._resource = resource
        self._name = name
        self._kind = kind
        self._parent = parent
        self._trace_id = trace_id = _ids.generate_trace_id() if parent is None else int(parent[3:35], 16)
        self._span_id = span_id = _ids.generate_span_id()
        self._attributes = dict(attributes or ())
        self._links = links
        self._began_at = time.time() if at is None else at
        self._steps: list[_Step] = []
        self.traceparent = f"00-{trace_id:032x}-{span_id:016x}-01"

    def note(self, name: str, value: str | int) -> None:
        """Set an attribute."""
        self._attributes[name] = value

    def step(self, name: str, began_at: float, ended_at: float, error: str = "", link: str | None = None) -> None:
        """Add a span below it that has ended."""
        self._steps.append(_Step(name, began_at, ended_at, error, link))

    def end(self, error: str = "", at: float | None = None) -> None:
        """End the span, which is then exported."""
        context = SpanContext(self._trace_id, self._span_id, is_remote=False, trace_flags=_SAMPLED)
        ended = _Ended(
            self._name,
            context,
            None if self._parent is None else _context_of(self._parent),
            self._resource,
            self._attributes,
            links=_linked(self._links),
            kind=_KINDS[self._kind],
            status=_status(error),
            start_time=_nanoseconds(self._began_at),
            end_time=_nanoseconds(time.time() if at is None else at),
            instrumentation_scope=_SCOPE,
        )
        ended.own_context, ended.steps = context, self._steps
        self._on_end(ended)


class StepExporter(SpanExporter):
    """Exports spans together with their steps, in the thread of the SDK."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See the base class."""
        return self._exporter.export([each for span in spans for each in _with_steps(span)])

    def shutdown(self) -> None:
        """See the base class."""
        self._exporter.shutdown()


def _with_steps(span: ReadableSpan) -> Iterator[ReadableSpan]:
    yield span
    if not isinstance(span, _Ended):
        return
    parent = span.own_context
    for step in span.steps:
        yield ReadableSpan(
            step.name,
            SpanContext(parent.trace_id, _ids.generate_span_id(), is_remote=False, trace_flags=_SAMPLED),
            parent,
            span.resource,
            links=() if step.link is None else _linked([step.link]),
            status=_status(step.error),
            start_time=_nanoseconds(step.began_at),
            end_time=_nanoseconds(step.ended_at),
            instrumentation_scope=_SCOPE,
        )


def _context_of(traceparent: str) -> SpanContext:
    trace_id, span_id = int(traceparent[3:35], 16), int(traceparent[36:52], 16)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=_SAMPLED)


def _linked(contexts: Sequence[str]) -> Sequence[Link]:
    return [Link(_context_of(context)) for context in contexts]


def _status(error: str) -> Status:
    return Status(StatusCode.ERROR, error) if error else _UNSET


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
