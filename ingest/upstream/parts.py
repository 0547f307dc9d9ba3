"""Fetches orders whose lists need separate requests. Such an order is complete, or it has failed.

Every page is a request like any other: it carries the credential, counts against the quota, is tried again immediately, and the circuit
breaker classifies its fault. The order's slot is held until the last page.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.errors import NoContent, PermanentFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.pages import Join, Page, PageRequest, Part
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order import InvalidDocument, TruncatedDocument

# Pages of one list. An API that never ends must not hold a slot indefinitely.
_MOST_PAGES = 1_000
# Decoding takes about 20 ms for each MB. Larger bodies are decoded in a thread.
_LARGE = 256 * 1024


class Fetches(Protocol):
    """The port `Upstream`."""

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """Fetch an order, after some immediate tries."""

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """Fetch an order with a single request."""


class PartsClient:
    """Keeps the port `Upstream`, for orders that come in parts.

    Args:
        upstream: fetches the orders themselves, one or several per request.
        fetch_page: fetches a page.
        limit: bytes of all responses for one order together.
    """

    def __init__(
        self,
        upstream: Fetches,
        fetch_page: Callable[[FetchRequest, PageRequest], Awaitable[Fetched | Failed]],
        parts: Sequence[Part],
        join: Join,
        limit: int,
    ) -> None:
        self._upstream = upstream
        self._fetch_page = fetch_page
        self._parts = parts
        self._join = join
        self._limit = limit

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """Return the order's document with its lists, or the first request that failed."""
        return await self._completed(await self._upstream.fetch(request), request)

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """The same, with a single request for the order itself: while the API is unavailable, it is the only one."""
        return await self._completed(await self._upstream.fetch_once(request), request)

    async def _completed(self, fetched: Fetched | Failed, request: FetchRequest) -> Fetched | Failed:
        if isinstance(fetched, Failed):
            return fetched
        exchange, size = Exchange((request,), time.monotonic()), len(fetched.body)
        try:
            parts: dict[str, list[Any]] = {}
            for part in self._parts:
                within: Page | None = await _off_loop(len(fetched.body), part.within, fetched.body, request.order_id)
                first = part.first(request.order_id) if within is None else within.next
                if first is None:
                    continue
                pages = await self._pages_from(first, part, request, size)
                if isinstance(pages, Failed):
                    return pages
                parts[part.name], size = pages
            if not parts:
                return fetched
            body = await _off_loop(size, self._join, fetched.body, parts)
        except TruncatedDocument as error:
            return Failed(TransientFault(str(error), reason=RetryReason.TRUNCATED), exchange)
        except InvalidDocument as error:
            return Failed(PermanentFault(DeadReason.INVALID_ORDER, str(error)), exchange)
        return Fetched(body, fetched.requested_at, fetched.exchange)

    async def _pages_from(
        self, first: PageRequest, part: Part, request: FetchRequest, size: int
    ) -> tuple[list[Any], int] | Failed:
        """Return the elements of this page and all that follow, and `size` with their bytes added.

        A page without content ends the list.
        """
        elements: list[Any] = []
        target: PageRequest | None = first
        seen: set[PageRequest] = set()
        while target is not None:
            if target in seen or len(seen) == _MOST_PAGES:
                raise InvalidDocument(f"part {part.name}: its pages repeat, or are more than {_MOST_PAGES}")
            seen.add(target)
            fetched = await self._fetch_page(request, target)
            if isinstance(fetched, Failed):
                if isinstance(fetched.fault, NoContent):
                    break
                return _named(fetched, part)
            size += len(fetched.body)
            if size > self._limit:
                raise InvalidDocument(f"part {part.name}: the order and its parts are larger than {self._limit} bytes")
            page: Page = await _off_loop(len(fetched.body), part.read, fetched.body, request.order_id, len(seen))
            elements += page.elements
            target = page.next
        return elements, size


def _named(failed: Failed, part: Part) -> Failed:
    """The failure with the name of the part, if it will be the reason of a dead letter."""
    fault = failed.fault
    if not isinstance(fault, PermanentFault):
        return failed
    named = PermanentFault(fault.reason, f"part {part.name}: {fault}", is_configured=fault.is_configured)
    return Failed(named, failed.exchange)


async def _off_loop(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result, from a thread if the document is large."""
    if size < _LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
