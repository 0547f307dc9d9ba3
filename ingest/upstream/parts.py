"""Fetches orders whose lists take requests of their own; such an order is complete, or a fault.

Every page is a request like any other: it has the credential, counts against the quota, is tried again at once, and its fault is
classified by the circuit breaker. The order's slot is held until the last page.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.errors import Fault, PermanentFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, Fetched, FetchRequest
from ingest.domain.fetch.pages import Join, Page, Part
from ingest.domain.orders.order import InvalidDocument, TruncatedDocument

# Pages of one list; an API that never ends must not hold a slot indefinitely.
_MOST_PAGES = 1_000
# Decoding takes some 20 ms for each MB: from here on it is done in a thread.
_LARGE = 256 * 1024


FetchAt = Callable[[FetchRequest, str], Awaitable[Fetched]]
"""Fetches what is at a path or URL of the API."""


class Fetches(Protocol):
    """Fetches the orders themselves: keeps the port `Upstream`."""

    async def fetch(self, request: FetchRequest) -> Fetched:
        """The order's own document."""

    async def fetch_once(self, request: FetchRequest) -> Fetched:
        """The same, with a single request."""


class PartsClient:
    """Keeps the port `Upstream`, for orders that come in parts.

    Args:
        upstream: fetches the orders themselves, alone or with others.
        fetch_at: fetches their pages.
        parts: the lists of an order.
        join: makes one document of all.
        limit: bytes of all responses for one order together.
    """

    def __init__(self, upstream: Fetches, fetch_at: FetchAt, parts: Sequence[Part], join: Join, limit: int) -> None:
        self._upstream = upstream
        self._fetch_at = fetch_at
        self._parts = parts
        self._join = join
        self._limit = limit

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return the order's document with its lists.

        Raises:
            Fault: a request has failed, or is answered with something else than a page.
        """
        return await self._completed(await self._upstream.fetch(request), request)

    async def fetch_once(self, request: FetchRequest) -> Fetched:
        """The same, with a single request for the order itself: while the API is unavailable, it is the only one."""
        return await self._completed(await self._upstream.fetch_once(request), request)

    async def _completed(self, fetched: Fetched, request: FetchRequest) -> Fetched:
        started, size = time.monotonic(), len(fetched.body)
        try:
            parts: dict[str, list[Any]] = {}
            for part in self._parts:
                parts[part.name], size = await self._all_pages(part, request, size)
            body = await _off_loop(size, self._join, fetched.body, parts)
        except TruncatedDocument as error:
            raise _in(request, started, TransientFault(str(error), reason=RetryReason.TRUNCATED)) from None
        except InvalidDocument as error:
            raise _in(request, started, PermanentFault(DeadReason.INVALID_ORDER, str(error))) from None
        return Fetched(body, fetched.requested_at, fetched.exchange)

    async def _all_pages(self, part: Part, request: FetchRequest, size: int) -> tuple[list[Any], int]:
        """Return the elements of all pages, and `size` with their bytes added."""
        elements: list[Any] = []
        target: str | None = part.first(request.order_id)
        seen: set[str] = set()
        while target is not None:
            if target in seen or len(seen) == _MOST_PAGES:
                raise InvalidDocument(f"part {part.name}: its pages repeat, or are more than {_MOST_PAGES}")
            seen.add(target)
            body = (await self._page(part, request, target)).body
            size += len(body)
            if size > self._limit:
                raise InvalidDocument(f"part {part.name}: the order and its parts are larger than {self._limit} bytes")
            page: Page = await _off_loop(len(body), part.read, body, request.order_id)
            elements += page.elements
            target = page.next
        return elements, size

    async def _page(self, part: Part, request: FetchRequest, target: str) -> Fetched:
        try:
            return await self._fetch_at(request, target)
        except PermanentFault as fault:
            named = PermanentFault(fault.reason, f"part {part.name}: {fault}")
            named.exchange = fault.exchange
            raise named from None


async def _off_loop(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result; of a large document, from a thread."""
    if size < _LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _in(request: FetchRequest, started: float, fault: Fault) -> Fault:
    fault.exchange = Exchange((request,), started)
    return fault
