"""The trace of one request to the HTTP API, which enqueues orders."""

import time
from contextvars import ContextVar

import structlog

from ingest.domain.trace_context import is_sampled, log_fields_of
from ingest.telemetry.tracing.port import Attributes, Span, Tracing

_SERVER_ERROR = 500


class RequestTrace:
    """The span of a request. It is recorded if the client traces the request, or if the request enqueues an order that is traced.

    Args:
        tracing: records it.
        name: of the route.
        parent: the context that the client has sent. None if it has sent none, or is not trusted.
        attributes: of the span.
    """

    def __init__(self, tracing: Tracing, name: str, parent: str | None, attributes: Attributes) -> None:
        self._tracing = tracing
        self._name = name
        self._attributes = attributes
        self._began_at = time.time()
        self._span: Span | None = None
        self.parent = parent
        if parent is not None and is_sampled(parent):
            self.begin()

    def begin(self) -> str:
        """Return the context of the span, which begins with the request."""
        if self._span is None:
            self._span = self._tracing.start(self._name, "server", self.parent, self._attributes, at=self._began_at)
            # Each request runs in a separate context.
            structlog.contextvars.bind_contextvars(**log_fields_of(self._span.traceparent))
        return self._span.traceparent

    def end(self, status: int) -> None:
        """The response has this status."""
        if self._span is not None:
            self._span.note("http.response.status_code", status)
            self._span.end(f"HTTP {status}" if status >= _SERVER_ERROR else "")


current_request: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)
"""The request that is being responded to, if traces are recorded."""
