"""A receiver of OTLP over HTTP, which decodes the spans of the real exporter."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support import eventually


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it was exported. IDs are hexadecimal."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    started_at: float
    ended_at: float
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    error: str


@dataclass(slots=True)
class Received:
    """The spans that have arrived at a receiver."""

    url: str
    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def trace(self, trace_id: str) -> dict[str, ReceivedSpan]:
        """The spans of a trace, by name."""
        return {span.name: span for span in self.spans if span.trace_id == trace_id}

    async def has(self, name: str, count: int = 1) -> list[ReceivedSpan]:
        """Wait until so many spans of a name have arrived."""

        def found() -> list[ReceivedSpan] | None:
            spans = self.named(name)
            return spans if len(spans) >= count else None

        spans = await eventually(found)
        assert spans is not None
        return spans


@asynccontextmanager
async def receiving(status: int = 200) -> AsyncIterator[Received]:
    """Run a receiver, which responds with this status."""
    received = Received("")

    async def receive(request: web.Request) -> web.Response:
        exported = ExportTraceServiceRequest.FromString(await request.read())
        if status == 200:
            received.spans += [span for resource in exported.resource_spans for span in _spans(resource)]
        return web.Response(status=status)

    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/v1/traces", receive)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    received.url = f"http://{host}:{port}"
    try:
        yield received
    finally:
        await runner.cleanup()


def _spans(resource: Any) -> list[ReceivedSpan]:
    service = _values(resource.resource.attributes)["service.name"]
    return [
        ReceivedSpan(
            service,
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano / 1e9,
            span.end_time_unix_nano / 1e9,
            _values(span.attributes),
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
        )
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value") for each in attributes}
