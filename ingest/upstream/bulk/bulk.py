"""Fetches several orders with one HTTP request, from an API with a list endpoint.

Waiting orders share a request. While no request is in flight, the calls of one iteration of the event loop are sent immediately, so that
a single order does not wait. Otherwise calls that do not fill a request wait up to 10 ms for others, because a small request would be
followed by another small one. They also wait while as many requests are in flight as all orders of the process would fill. A request
that takes much longer than the last response does not count, so that one order that hangs does not hold up others.

Each call ends with the result of its own order:

* An order that is missing from the response does not exist. If the response contains other requested orders, it may have been cut to a
  page, so the missing orders are requested once more. Only an empty response proves that they do not exist. A response with other
  orders only is unrelated, because the API ignores the IDs, or they are read from the wrong member.
* If the request as a whole fails, all of its calls fail with `Failed.is_shared` and one `Exchange`, which counts as one failed request.
  The flow decides whether the API is at fault. If it is not, the flow calls again with half of the orders per request, so that an order
  that breaks the response for others is isolated within log2(n) steps.

A fetch has no side effects. If it is cancelled or the process dies, nothing has happened.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, Self

import msgspec

from ingest.domain.errors import NotSent
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.telemetry.logs import get_logger
from ingest.upstream.bulk.bulk_request import BulkResponse, Requester
from ingest.upstream.bulk.bulk_response import BulkResponseReader
from ingest.upstream.bulk.bulk_waiting import WaitingCall, WaitingCalls

_log = get_logger("upstream")

# A request that takes this many times as long as the last response did, and at least this many seconds, does not hold up others.
_MUCH_LONGER = 4.0
_LONG = 1.0
# Longer than the flow takes to read the orders for the slots that a response has freed.
_GATHER = 0.01
# A pause may end early, after an outage, without notice to the waiting calls.
_LOOK_AGAIN = 0.5


class BulkPace(Protocol):
    """How fast requests may follow each other: `ingest.flow.pace.pace`."""

    @property
    def requests(self) -> int:
        """Requests that may be in flight."""

    def request_delay(self) -> float:
        """Seconds until the next one may begin, or 0 or less for now."""

    def record_request(self) -> None:
        """A request begins."""


class ListClient(Protocol):
    """Fetches the URL of a list, `ingest.upstream.client`. The order ID of its requests is several IDs, separated by commas."""

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """Fetch it, after some quick tries."""

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """Fetch it with a single try."""


class BulkOptions(msgspec.Struct, frozen=True):
    """How orders are requested together.

    Attributes:
        size: most orders in one request.
        requests: the most concurrent requests.
        url_length: of the URL, without the IDs.
        body: most bytes of one document.
        path: where the list is in the response, and
        id_path: the ID in a document: see `BulkResponseReader`.
    """

    size: int
    requests: int
    url_length: int
    body: int
    path: str = ""
    id_path: str = "id"


class BulkUpstream:
    """Keeps the port `Upstream` on an API with a list endpoint.

    Args:
        client: sends the requests.
        pace: how fast requests may follow each other. None for no limit.
        clock: monotonic seconds, the same clock as that of the circuit breaker.
    """

    def __init__(
        self,
        client: ListClient,
        options: BulkOptions,
        pace: BulkPace | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pace = pace
        self._client = client
        self._most = options.requests
        self._requester = Requester(BulkResponseReader(options.path, options.id_path, options.size), options.body)
        self._clock = clock
        self._waiting = WaitingCalls(options.size, options.url_length)
        self._running: set[asyncio.Task[None]] = set()
        self._counted = 0
        self._last_seconds = 0.0
        self._is_due = False
        self._gathering: asyncio.TimerHandle | None = None
        self._has_gathered = False
        self._has_warned = False
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        client: ListClient,
        options: BulkOptions,
        pace: BulkPace | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[Self]:
        """Open it on a client. At the end, the requests in flight are dropped."""
        bulk = cls(client, options, pace, clock=clock)
        try:
            yield bulk
        finally:
            bulk._end_gathering()
            for task in bulk._running:
                task.cancel()
            if bulk._running:
                await asyncio.wait(bulk._running)

    async def run(self) -> None:
        """See `FleetPart`; there is nothing to keep."""
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """The process stops. Calls that wait for a pause to end are not sent any more."""
        self._is_closed = True
        self._send()

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """See `Upstream`; the HTTP request may be sent for other orders as well."""
        call = WaitingCall(request, asyncio.get_running_loop().create_future())
        self._waiting.add(call)
        self._send_soon()
        return await call.result()

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """See `Upstream`. The HTTP request is sent for this order only."""
        result = await self._requester.request((request,), self._client.fetch_once)
        if isinstance(result, Failed):
            return result
        found = result.of(request.order_id)
        if found is None:
            raise AssertionError("a response to a request for one order contains it or not")
        return found

    def _send_soon(self) -> None:
        """Send with what else arrives in this turn of the loop."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        while self._waiting and self._has_room():
            if self._pace is not None and (pause := self._pace.request_delay()) > 0:
                if self._is_closed:
                    self._drop_waiting()
                    return
                self._is_due = True
                asyncio.get_running_loop().call_later(min(pause, _LOOK_AGAIN), self._send)
                return
            if self._gathers():
                return
            if calls := self._waiting.take():
                self._end_gathering()
                self._begin(_Flight(calls))

    def _drop_waiting(self) -> None:
        while calls := self._waiting.take():
            for call in calls:
                call.end(Failed(NotSent(), Exchange((call.request,), self._clock())))

    def _gathers(self) -> bool:
        """Whether the waiting calls should wait for more, until a timer ends."""
        if not self._running or self._waiting.fills_request:
            return False
        if self._has_gathered:
            return False
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(_GATHER, self._gathered)
        return True

    def _gathered(self) -> None:
        """Send the waiting calls, even if they do not fill a request."""
        self._has_gathered = True
        self._send()
        self._has_gathered = False
        self._end_gathering()

    def _end_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

    def _has_room(self) -> bool:
        if self._counted >= self._most:
            return False
        # While the API throttles, also those count that take long.
        return self._pace is None or self._pace.requests >= self._most or len(self._running) < self._pace.requests

    def _begin(self, flight: "_Flight") -> None:
        if self._pace is not None:
            self._pace.record_request()
        self._counted += 1
        flight.task = task = asyncio.create_task(self._run(flight))
        self._running.add(task)
        # Also of a task that is cancelled before it begins.
        task.add_done_callback(partial(self._ended, flight))

    async def _run(self, flight: "_Flight") -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        timer = loop.call_later(max(_LONG, _MUCH_LONGER * self._last_seconds), self._uncount, flight)
        try:
            response = await self._requester.request(flight.requests, self._client.fetch)
        except asyncio.CancelledError:
            flight.cancel()
            raise
        except Exception as bug:  # noqa: BLE001  each caller reports it for its own order
            flight.fail(bug)
        else:
            if isinstance(response, BulkResponse):
                self._last_seconds = loop.time() - began
            self._request_again(flight.deliver(response), flight)
        finally:
            timer.cancel()

    def _request_again(self, missing: Sequence[WaitingCall], flight: "_Flight") -> None:
        for call in missing:
            if call.is_missing and not self._has_warned:
                # Others that were missing with it have come now.
                self._has_warned = True
                _log.warning("bulk_response_incomplete", requested=len(flight.requests), missing=len(missing))
            call.is_missing = True
            self._waiting.add(call)

    def _ended(self, flight: "_Flight", task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._uncount(flight)

    def _uncount(self, flight: "_Flight") -> None:
        """The request holds up others no longer: it has ended, or takes too long."""
        if flight.is_counted:
            flight.is_counted = False
            self._counted -= 1
        if self._waiting:
            self._send_soon()


class _Flight:
    """The calls of one HTTP request, which is cancelled when all callers have left.

    Attributes:
        requests: of the calls, one for each order.
        is_counted: whether it holds up others.
        task: sends it.
    """

    __slots__ = ("_calls", "_left", "is_counted", "requests", "task")

    def __init__(self, calls: Sequence[WaitingCall]) -> None:
        self._calls = calls
        self._left = 0
        self.requests = tuple({call.request.order_id: call.request for call in calls}.values())
        self.is_counted = True
        self.task: asyncio.Task[None] | None = None
        for call in calls:
            call.on_leave = self._leave

    def deliver(self, response: BulkResponse | Failed) -> list[WaitingCall]:
        """End the calls, and return the calls that are missing from the response."""
        missing = []
        for call in self._calls:
            result = response if isinstance(response, Failed) else response.of(call.request.order_id)
            if result is None:
                call.on_leave = None
                missing.append(call)
            else:
                call.end(result)
        return missing

    def fail(self, bug: Exception) -> None:
        """End the calls with an exception."""
        for call in self._calls:
            call.fail(bug)

    def cancel(self) -> None:
        """Cancel the calls."""
        for call in self._calls:
            call.ended.cancel()

    def _leave(self) -> None:
        self._left += 1
        if self._left == len(self._calls) and self.task is not None:
            self.task.cancel()
