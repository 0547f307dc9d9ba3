"""A transport that records the requests for orders that are traced, and sends the context of each request in `traceparent`."""

from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from ingest.domain.trace_context import is_sampled
from ingest.telemetry.tracing.port import Attributes, Tracing, error_of
from ingest.upstream.http.transport import Method, NoDocument, OnHead, Options, Transport
from ingest.upstream.opening import OpenTransport

_HEADER = "traceparent"


class TracedTransport:
    """See `Transport`. A request without a sampled context is passed on unchanged.

    Args:
        transport: sends the requests.
        tracing: records them.
        server: attributes of their server.
    """

    def __init__(self, transport: Transport, tracing: Tracing, server: Attributes) -> None:
        self._transport = transport
        self._tracing = tracing
        self._server = server

    def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_head: OnHead | None = None,
    ) -> Coroutine[Any, Any, bytes]:
        """See `Transport`."""
        context = headers.get(_HEADER)
        if context is None or not is_sampled(context):
            return self._transport.send(url, headers, method, body, on_head)
        return self._traced(context, url, headers, method, body, on_head)

    async def _traced(
        self,
        context: str,
        url: str,
        headers: Mapping[str, str],
        method: Method,
        body: bytes | None,
        on_head: OnHead | None,
    ) -> bytes:
        span = self._tracing.start("fetch", "client", context, self._server)
        span.note("http.request.method", method)

        def noted(status: int, received: Mapping[str, str]) -> None:
            span.note("http.response.status_code", status)
            if on_head is not None:
                on_head(status, received)

        try:
            document = await self._transport.send(url, {**headers, _HEADER: span.traceparent}, method, body, noted)
        except NoDocument as response:
            span.note("http.response.status_code", response.status)
            span.end(str(response))
            raise
        except BaseException as error:
            span.end(error_of(error))
            raise
        span.end()
        return document


def traced_opener(opener: OpenTransport, tracing: Tracing, url: str) -> OpenTransport:
    """Return the function that opens transports of the same kind with traces, for the server of a URL."""
    # The path and the query may contain a credential.
    parts = urlsplit(url)
    server: dict[str, str | int] = {"server.address": parts.hostname or ""}
    if parts.port is not None:
        server["server.port"] = parts.port

    @asynccontextmanager
    async def opened(options: Options) -> AsyncIterator[Transport]:
        async with opener(options) as transport:
            yield TracedTransport(transport, tracing, server)

    def open_traced(options: Options) -> AbstractAsyncContextManager[Transport]:
        return opened(options)

    return open_traced
