"""Implements the port on OpenTelemetry's SDK, which exports spans by OTLP over HTTP in a separate thread.

Import it only with the extra `otel`. The SDK reads its own variables for everything except the endpoint and the sampling: headers,
certificates, batches, attributes of the resource. If the process dies here, the spans of the last seconds are lost.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from ingest.telemetry.logs import get_logger
from ingest.telemetry.tracing.port import Attributes, Kind
from ingest.telemetry.tracing.sampling import OrderSampling

_log = get_logger("traces")

_PATH = "/v1/traces"
# Seconds for the last export, before a process ends.
_LAST_WAIT = 2.0
# Seconds between two log lines while spans cannot be exported.
_LOG_EVERY = 60.0
_KINDS: dict[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}


class OtelSpan:
    """A span of the SDK, see `ingest.telemetry.tracing.port.Span`."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def note(self, name: str, value: str | int) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def end(self, error: str = "", at: float | None = None) -> None:
        """End the span."""
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(None if at is None else _nanoseconds(at))


class OtelTracing:
    """Traces a share of the orders, see `ingest.telemetry.tracing.port.Tracing`."""

    def __init__(self, provider: TracerProvider, sampling: OrderSampling) -> None:
        self._tracer = provider.get_tracer("order-ingest")
        self.takes = sampling.takes

    @classmethod
    @asynccontextmanager
    async def open(cls, endpoint: str, share: float, service: str) -> AsyncIterator[Self]:
        """Export to the OTLP receiver at a base URL while the block runs, then export the rest for up to two seconds.

        Args:
            endpoint: `/v1/traces` is appended.
            share: of the orders that are traced.
            service: name of the service, unless `OTEL_SERVICE_NAME` is set.
        """
        resource = Resource({"service.name": service}).merge(OTELResourceDetector().detect())
        provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        with_path = endpoint if endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(with_path)))
        _log_failures()
        try:
            yield cls(provider, OrderSampling(share))
        finally:
            await _shut_down(provider)

    def start(
        self,
        name: str,
        kind: Kind = "internal",
        parent: str | None = None,
        attributes: Attributes | None = None,
        links: Sequence[str] = (),
        at: float | None = None,
    ) -> OtelSpan:
        """Start a span."""
        context = None
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(_context_of(parent)))
        span = self._tracer.start_span(
            name,
            context,
            _KINDS[kind],
            attributes,
            [Link(_context_of(link)) for link in links],
            None if at is None else _nanoseconds(at),
        )
        return OtelSpan(span)


def _context_of(traceparent: str) -> SpanContext:
    trace_id, span_id, flags = traceparent[3:35], traceparent[36:52], traceparent[53:55]
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)


class _Failures(logging.Handler):
    """Logs the failures of the SDK once a minute, because it reports every attempt."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged_at = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record of the SDK, unless another one was logged a moment ago."""
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY:
            self._logged_at = now
            _log.warning("traces_not_exported", problem=record.getMessage())


def _log_failures() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.handlers = [_Failures()]
    logger.propagate = False


async def _shut_down(provider: TracerProvider) -> None:
    """Export the rest in a thread that does not keep the process from ending, because the receiver may not respond."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        # The loop is closed if it has taken too long.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="traces", daemon=True).start()
    try:
        async with asyncio.timeout(_LAST_WAIT):
            await done.wait()
    except TimeoutError:
        _log.warning("traces_not_exported", problem=f"the receiver has not responded within {_LAST_WAIT:g} s")
