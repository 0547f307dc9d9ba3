"""Records requests for several orders, which are in different traces.

Such a request is a separate trace with links to the traces of its orders, in each of which a span lasts from the call to its result.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.trace_context import is_sampled
from ingest.telemetry.tracing.port import Span, Tracing, error_of
from ingest.upstream.parts import Fetches

_Result = Coroutine[Any, Any, Fetched | Failed]
_Fetch = Callable[[FetchRequest], Awaitable[Fetched | Failed]]


class TracedCalls:
    """Records the call for each order, in front of `BulkUpstream`."""

    def __init__(self, bulk: Fetches, tracing: Tracing) -> None:
        self._bulk = bulk
        self._tracing = tracing

    def fetch(self, request: FetchRequest) -> _Result:
        """See `Upstream`."""
        return self._traced(request, self._bulk.fetch)

    def fetch_once(self, request: FetchRequest) -> _Result:
        """See `Upstream`."""
        return self._traced(request, self._bulk.fetch_once)

    async def _traced(self, request: FetchRequest, fetch: _Fetch) -> Fetched | Failed:
        context = request.traceparent
        if context is None or not is_sampled(context):
            return await fetch(request)
        return await _recorded(self._tracing.start("fetch", parent=context), request, fetch)


class TracedRequests:
    """Records each request for several orders, behind `BulkUpstream`."""

    def __init__(self, client: Fetches, tracing: Tracing) -> None:
        self._client = client
        self._tracing = tracing

    def fetch(self, request: FetchRequest) -> _Result:
        """See `Fetches`."""
        return self._traced(request, self._client.fetch)

    def fetch_once(self, request: FetchRequest) -> _Result:
        """See `Fetches`."""
        return self._traced(request, self._client.fetch_once)

    async def _traced(self, request: FetchRequest, fetch: _Fetch) -> Fetched | Failed:
        links = [context for context in request.linked if is_sampled(context)]
        if not links:
            return await fetch(request)
        return await _recorded(self._tracing.start("fetch batch", links=links), request, fetch)


async def _recorded(span: Span, request: FetchRequest, fetch: _Fetch) -> Fetched | Failed:
    """Fetch in the context of a span, and end it."""
    try:
        result = await fetch(msgspec.structs.replace(request, traceparent=span.traceparent))
    except BaseException as error:
        span.end(error_of(error))
        raise
    span.end(str(result.fault) if isinstance(result, Failed) else "")
    return result
