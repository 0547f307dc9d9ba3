"""Requests the pages of a list of orders over HTTP. It implements the port `OrderList`.

It has no state and no side effects. `ingest.domain.fetch.reading` decides which page is requested next.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ingest.domain.errors import ListFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.listed import ListedPage, ListShape, PageRequest
from ingest.domain.fetch.quota import QuotaLimits
from ingest.domain.fetch.result import document_of
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.client import transport_opener, with_tries
from ingest.upstream.conditions import Conditions
from ingest.upstream.http.redirects import RefusedRedirect, redirect_target
from ingest.upstream.http.transport import OnHead, UpstreamLimits
from ingest.upstream.lists.declaration import LINK, OFFSET, PAGE, ListDeclaration
from ingest.upstream.lists.links import counts_up
from ingest.upstream.lists.page_reading import PageReader
from ingest.upstream.lists.requests import CURSOR, SINCE, SIZE, UNTIL, ListRequests, Values
from ingest.upstream.lists.times import ListTimes
from ingest.upstream.opening import open_access
from ingest.upstream.session import ApiSession, utc_now

if TYPE_CHECKING:
    from ingest.upstream.quota.quota import FleetQuota

# Belongs to no order.
_REQUEST = FetchRequest("")
_EMPTY_STATUS = 204
# Decoding takes about 20 ms for each MB. Larger pages are decoded in a thread.
_LARGE = 256 * 1024
# The index of a shop, and a replica of its database, are seconds behind. Within the overlap, which the next poll reads again.
_SETTLED_AFTER = timedelta(minutes=1)


class ListOptions(msgspec.Struct, frozen=True):
    """A list of orders, and how it is requested.

    Attributes:
        endpoint: the list's URL without values, its method, and the credential.
        declared: the description of the list.
        times: of its requests.
        reader: of its pages.
        limits: of one request and its response.
        overlap: how far a poll reads again before the last one.
        look_back: how far one poll an hour reads again. 0 for never.
        quota: limits over all processes, if the API counts requests for the list separately.
    """

    endpoint: Endpoint
    declared: ListDeclaration
    times: ListTimes
    reader: PageReader
    limits: UpstreamLimits
    overlap: timedelta
    look_back: timedelta
    quota: QuotaLimits | None = None


class HttpOrderList:
    """Keeps the port `OrderList`.

    Args:
        session: sends the requests.
        options: of the list.
        draw: returns a uniform random number between its arguments, for the pauses between tries.

    Attributes:
        options: of the list.
        shape: see `OrderList`.
    """

    def __init__(
        self, session: ApiSession, options: ListOptions, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self.options = options
        self._session = session
        self._declared = options.declared
        self._draw = draw
        self._requests = ListRequests(options.declared)
        self.shape = _shape(options, self._requests)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        options: ListOptions,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = utc_now,
        quota: "FleetQuota | None" = None,
    ) -> AsyncIterator[Self]:
        """Open a list with its transport and its credential. For the arguments, see `ApiSession`.

        Raises:
            ConfigError: a certificate cannot be used.
        """
        endpoint, limits = options.endpoint, options.limits
        async with open_access(endpoint, transport_opener(endpoint.kind), limits, now) as (transport, credential):
            session = ApiSession(
                transport, endpoint, limits.body, seconds, credential=credential, now=now, conditions=Conditions(quota)
            )
            yield cls(session, options)

    async def page(self, request: PageRequest) -> ListedPage:
        """See `OrderList`."""
        received: list[Mapping[str, str]] = []
        body = await self._body(request, lambda _, headers: received.append(headers))
        headers: Mapping[str, str] = received[-1] if received else {}
        read = partial(self.options.reader.read, body, headers, request.number, is_part=request.size is not None)
        page = read() if len(body) < _LARGE else await asyncio.to_thread(read)
        if page.next is None or not self._names_urls:
            return page
        # Without the origin, which must not change.
        target = urlsplit(self._target(page.next))
        following = urlunsplit(target._replace(scheme="", netloc=""))
        is_counted = counts_up(request.cursor or self._url(request), following)
        return msgspec.structs.replace(page, next=following, is_counted=is_counted)

    @property
    def _names_urls(self) -> bool:
        """Whether the shop names the next page by its URL."""
        return self._declared.next == LINK or not (self._requests.has_cursor or self._declared.is_numbered)

    def _values(self, request: PageRequest) -> Values:
        cursor = request.cursor if self._requests.has_cursor else None
        if self._declared.is_numbered:
            cursor = str(request.number + (self._declared.first_page if self._declared.next == PAGE else 0))
        return {
            SINCE: self.options.times.start(request.since),
            UNTIL: None if request.until is None else self.options.times.end(request.until),
            CURSOR: cursor,
            SIZE: str(request.size or self._declared.size),
        }

    def _url(self, request: PageRequest) -> str:
        if request.cursor is not None and self._names_urls:
            return self._target(request.cursor)
        return self._requests.url_of(self._values(request))

    async def _body(self, request: PageRequest, on_head: OnHead) -> bytes:
        url, method, body = self._url(request), self._requests.method, self._requests.body_of(self._values(request))
        send = partial(self._session.send, (_REQUEST,), url, body, method, on_head=on_head, empty_status=_EMPTY_STATUS)
        return document_of(await with_tries(send, self.options.limits.tries, self._draw))

    def _target(self, cursor: str) -> str:
        """Return the URL of a page that the response before has named."""
        try:
            target = redirect_target(self._requests.url, 307, cursor)
        except RefusedRedirect as refused:
            raise ListFault(f"the next page of the list {refused}") from None
        if target is None:
            raise ListFault("the next page of the list has no URL")
        return target


def _shape(options: ListOptions, requests: ListRequests) -> ListShape:
    declared = options.declared
    return ListShape(
        has_pages=bool(declared.next),
        is_numbered=declared.is_numbered,
        counts_elements=declared.next == OFFSET,
        size=declared.size,
        is_divisible=requests.has_size,
        has_times=bool(declared.updated_at),
        is_sorted=declared.ascending and bool(declared.updated_at),
        unit=options.times.unit,
        settled_after=min(_SETTLED_AFTER, options.overlap),
    )
