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
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ingest.telemetry.logs import get_logger
from ingest.telemetry.tracing.otel_spans import OtelSpan, StepExporter
from ingest.telemetry.tracing.port import Attributes, Kind
from ingest.telemetry.tracing.sampling import OrderSampling

_log = get_logger("traces")

_PATH = "/v1/traces"
# Seconds for the last export, before a process ends.
_LAST_WAIT = 2.0
# Seconds between two log lines while spans cannot be exported.
_LOG_EVERY = 60.0


class OtelTracing:
    """Traces a share of the orders, see `ingest.telemetry.tracing.port.Tracing`.

    Args:
        processor: exports spans that have ended.
        resource: describes this process.
        sampling: of the orders.
    """

    def __init__(self, processor: BatchSpanProcessor, resource: Resource, sampling: OrderSampling) -> None:
        self._on_end = processor.on_end
        self._resource = resource
        self.takes = sampling.takes

    @staticmethod
    def load(endpoint: str) -> None:
        """Import the modules that the SDK imports when an exporter is constructed, so that forked processes share them."""
        OTLPSpanExporter(endpoint)

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
        with_path = endpoint if endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH
        processor = BatchSpanProcessor(StepExporter(OTLPSpanExporter(with_path)))
        _log_failures()
        try:
            yield cls(processor, resource, OrderSampling(share))
        finally:
            await _shut_down(processor)

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
        return OtelSpan(self._on_end, self._resource, name, kind, parent, attributes, links, at)


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


async def _shut_down(processor: BatchSpanProcessor) -> None:
    """Export the rest in a thread that does not keep the process from ending, because the receiver may not respond."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        processor.shutdown()  # type: ignore[no-untyped-call]  # has no annotations
        # The loop is closed if it has taken too long.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="traces", daemon=True).start()
    try:
        async with asyncio.timeout(_LAST_WAIT):
            await done.wait()
    except TimeoutError:
        _log.warning("traces_not_exported", problem=f"the receiver has not responded within {_LAST_WAIT:g} s")
