"""Reads a list of orders over HTTP, page by page. It implements the port `OrderList`.

Reading has no side effects. If the process dies here, the caller reads again from its last cursor, or from the start.

Cursors are texts that can be stored. In a list that is sorted by the time of the last change, the next page is not requested by its
number, but by the last time seen, because an order that changes while the list is read moves to the end, and all others move forward by
one place. Such a cursor begins with `@` and a time. Pages up to that time are requested by their cursors, which follow it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ingest.domain.errors import Fault, ListFault, TokenFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.listed import ListedPage
from ingest.domain.fetch.quota import QuotaLimits
from ingest.domain.fetch.result import Fetched
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.client import transport_opener
from ingest.upstream.conditions import Conditions
from ingest.upstream.http.redirects import RefusedRedirect, redirect_target
from ingest.upstream.http.transport import OnHead, UpstreamLimits
from ingest.upstream.lists.declaration import LINK, ListDeclaration
from ingest.upstream.lists.page_reading import PageReader, ReadPage
from ingest.upstream.lists.requests import CURSOR, SINCE, UNTIL, ListRequests
from ingest.upstream.lists.times import ListTimes
from ingest.upstream.opening import open_access
from ingest.upstream.responses import http_date
from ingest.upstream.session import ApiSession, utc_now

if TYPE_CHECKING:
    from ingest.upstream.quota.quota import FleetQuota

# Belongs to no order.
_REQUEST = FetchRequest("")
_EMPTY_STATUS = 204
# Decoding takes about 20 ms for each MB. Larger pages are decoded in a thread.
_LARGE = 256 * 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_FROM = "@"
_SECOND = timedelta(seconds=1)


class ListOptions(msgspec.Struct, frozen=True):
    """A list of orders, and how it is requested.

    Attributes:
        endpoint: the list's URL without values, its method, and the credential.
        declared: the description of the list.
        limits: of one request and its response.
        overlap: how far a poll reads again before the last one.
        look_back: how far one poll an hour reads again. 0 for never.
        quota: limits over all processes, if the API counts requests for the list separately.
    """

    endpoint: Endpoint
    declared: ListDeclaration
    limits: UpstreamLimits
    overlap: timedelta
    look_back: timedelta
    quota: QuotaLimits | None = None


class HttpOrderList:
    """Keeps the port `OrderList`.

    Args:
        session: sends the requests.
        declared: the description of the list.
        tries: immediate tries for one page.
        draw: returns a uniform random number between its arguments, for the pauses between tries.

    Raises:
        ListProblem: the list cannot be used as it is described.
    """

    def __init__(
        self,
        session: ApiSession,
        declared: ListDeclaration,
        tries: int,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._session = session
        self._declared = declared
        self._tries = tries
        self._draw = draw
        self._times = ListTimes(declared.time, declared.zone)
        self._requests = ListRequests(declared)
        self._reader = PageReader(declared, self._times)

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
            yield cls(session, options.declared, limits.tries)

    async def page(self, since: datetime, until: datetime | None, cursor: str | None) -> ListedPage:
        """See `OrderList`."""
        since, cursor = _segment(since, cursor)
        received: list[Mapping[str, str]] = []
        fetched = await self._fetched(since, until, cursor, lambda _, headers: received.append(headers))
        headers: Mapping[str, str] = received[-1] if received else {}
        if len(fetched.body) < _LARGE:
            page = self._reader.read(fetched.body, headers, cursor)
        else:
            page = await asyncio.to_thread(self._reader.read, fetched.body, headers, cursor)
        last = self._last_of_sorted(page)
        return ListedPage(
            page.orders,
            self._next(page, since, until, last),
            http_date(headers.get("Date")),
            page.count - len(page.orders),
            last,
        )

    async def _fetched(
        self,
        since: datetime,
        until: datetime | None,
        cursor: str | None,
        on_head: OnHead,
    ) -> Fetched:
        values = {
            SINCE: self._times.start(since),
            UNTIL: None if until is None else self._times.end(until),
            CURSOR: cursor if self._requests.has_cursor else None,
        }
        if self._declared.is_numbered and cursor is None:
            values[CURSOR] = str(self._reader.first_number)
        url, method, body = self._requests.url_of(values), self._requests.method, self._requests.body_of(values)
        if cursor is not None and not self._requests.has_cursor:
            url = self._target(cursor)
        number = 0
        while True:
            result = await self._session.send(
                (_REQUEST,), url, body, method, on_head=on_head, empty_status=_EMPTY_STATUS
            )
            if isinstance(result, Fetched):
                return result
            number += 1
            if number >= self._tries or not _may_pass(result.fault):
                raise result.fault
            await asyncio.sleep(self._draw(0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(number - 1, 10))))

    def _target(self, cursor: str) -> str:
        """Return the URL of a page that the response before has named."""
        try:
            target = redirect_target(self._requests.url, 307, cursor)
        except RefusedRedirect as refused:
            raise ListFault(f"the next page of the list {refused}") from None
        if target is None:
            raise ListFault("the next page of the list has no URL")
        return target

    def _next(self, page: ReadPage, since: datetime, until: datetime | None, last: datetime | None) -> str | None:
        """Return the cursor that callers get."""
        cursor = page.next
        if cursor is None:
            return None
        if self._declared.next == LINK or not (self._requests.has_cursor or self._declared.is_numbered):
            # Without the origin, which must not change.
            cursor = urlunsplit(urlsplit(self._target(cursor))._replace(scheme="", netloc=""))
        if not self._declared.ascending:
            return cursor
        if last is None:
            return _in_segment(since, cursor)
        if until is not None and last > until + _SECOND:
            return None
        # A request also lists the second before, which may fill a page. To begin again there would lead nowhere.
        is_later = last > since and self._times.start(last) != self._times.start(since)
        return _FROM + last.isoformat() if is_later else _in_segment(since, cursor)

    def _last_of_sorted(self, page: ReadPage) -> datetime | None:
        """Return the last time of a page of a sorted list, or None if the page is not sorted."""
        if not self._declared.ascending or not page.orders:
            return None
        last = page.orders[-1].updated_at
        is_sorted = last is not None and all(
            order.updated_at is not None and order.updated_at <= last for order in page.orders
        )
        return last if is_sorted else None


def _segment(since: datetime, cursor: str | None) -> tuple[datetime, str | None]:
    """Return the start of the period that a cursor belongs to, and the shop's own cursor."""
    if cursor is None or not cursor.startswith(_FROM):
        return since, cursor
    start, _, rest = cursor.removeprefix(_FROM).partition(" ")
    try:
        return datetime.fromisoformat(start), rest or None
    except ValueError:
        raise ListFault("the cursor of the list is not one of its cursors") from None


def _in_segment(since: datetime, cursor: str) -> str:
    return f"{_FROM}{since.isoformat()} {cursor}"


def _may_pass(fault: Fault) -> bool:
    """Whether an immediate try may succeed. Requests for a token have their own pauses."""
    return isinstance(fault, TransientFault) and not isinstance(fault, TokenFault)
