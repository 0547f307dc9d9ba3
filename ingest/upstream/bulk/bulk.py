"""Fetches several orders with one HTTP request, from an API with a list endpoint.

Orders that wait at the same time travel together. While no request is in flight, the calls of one turn of the event loop go at once:
a single order waits for nobody. Otherwise calls that do not fill a request wait up to 10 ms for others, or a small request would be
followed by one as small. They also wait while as many requests are in flight as all orders of the process would fill. A request that
takes much longer than the last answer did does not count for that: one order that hangs does not hold up others.

Each call ends with its own document or its own fault:

* An order that is missing from the answer does not exist. If the answer has others, it may have been cut to a page, so the missing
  ones are requested once more, by themselves; only an empty answer says that they do not exist. One with other orders only is no
  answer to the request: the API ignores the IDs, or they are read from the wrong member.
* If the request as a whole fails, so do all of its calls, with `Fault.is_shared` and one `Exchange`: it counts as one failed request.
  The flow decides whether the API is at fault, and calls again for half as many orders at a time if it is not. So an order that breaks
  the answer for the others is isolated within log2(n) steps.

A fetch has no side effects: if it is cancelled or the process dies, nothing has happened.
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
from ingest.upstream.bulk.bulk_answer import AnswerReader
from ingest.upstream.bulk.bulk_request import Answer, Requester
from ingest.upstream.bulk.bulk_waiting import Call, WaitingCalls

_log = get_logger("upstream")

# A request that takes this many times as long as the last answer did, and at least this many seconds, holds up no others.
_MUCH_LONGER = 4.0
_LONG = 1.0
# Longer than the flow takes to read the orders for the slots that an answer has freed.
_GATHER = 0.01
# A pause may end before its time, after an outage; nothing says so to the calls that wait.
_LOOK_AGAIN = 0.5


class Pace(Protocol):
    """How fast requests may follow each other: `ingest.flow.pace.pace`."""

    @property
    def requests(self) -> int:
        """Requests that may be in flight."""

    def request_delay(self) -> float:
        """Seconds until the next one may begin; 0 or less for now."""

    def record_request(self) -> None:
        """A request begins."""


class ListClient(Protocol):
    """Fetches what is at the URL of a list, `ingest.upstream.client`; the order ID of its requests is several, separated by commas."""

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """Fetch it, after some quick tries."""

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """Fetch it with a single try."""


class BulkOptions(msgspec.Struct, frozen=True):
    """How orders are requested together.

    Attributes:
        size: most orders in one request.
        requests: requests at a time that are useful.
        url_length: of the URL, without the IDs.
        body: most bytes of one document.
        path: where the list is in the answer, and
        id_path: the ID in a document: see `AnswerReader`.
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
        pace: how fast requests may follow each other; None: as fast as they can.
        clock: monotonic seconds, those of the circuit breaker.
    """

    def __init__(
        self,
        client: ListClient,
        options: BulkOptions,
        pace: Pace | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pace = pace
        self._client = client
        self._most = options.requests
        self._requester = Requester(AnswerReader(options.path, options.id_path, options.size), options.body)
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
        pace: Pace | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[Self]:
        """Open it on a client; at the end, the requests in flight are dropped."""
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
        """The process stops: what waits for a pause to end is not sent any more."""
        self._is_closed = True
        self._send()

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """See `Upstream`; the HTTP request may be sent for other orders as well."""
        call = Call(request, asyncio.get_running_loop().create_future())
        self._waiting.add(call)
        self._send_soon()
        return await call.result()

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """See `Upstream`; the HTTP request is sent for this order alone."""
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
        """Whether what waits should wait for more, until a timer ends."""
        if not self._running or self._waiting.fills_request:
            return False
        if self._has_gathered:
            return False
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(_GATHER, self._gathered)
        return True

    def _gathered(self) -> None:
        """Send what waits, full or not."""
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
            answer = await self._requester.request(flight.requests, self._client.fetch)
        except asyncio.CancelledError:
            flight.cancel()
            raise
        except Exception as bug:  # noqa: BLE001  each caller reports it for its own order
            flight.fail(bug)
        else:
            if isinstance(answer, Answer):
                self._last_seconds = loop.time() - began
            self._request_again(flight.deliver(answer), flight)
        finally:
            timer.cancel()

    def _request_again(self, missing: Sequence[Call], flight: "_Flight") -> None:
        for call in missing:
            if call.is_missing and not self._has_warned:
                # Others that were missing with it have come now.
                self._has_warned = True
                _log.warning("bulk_answer_incomplete", requested=len(flight.requests), missing=len(missing))
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
    """The calls of one HTTP request; when all callers have left, it is cancelled.

    Attributes:
        requests: of the calls, one for each order.
        is_counted: whether it holds up others.
        task: sends it.
    """

    __slots__ = ("_calls", "_left", "is_counted", "requests", "task")

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._left = 0
        self.requests = tuple({call.request.order_id: call.request for call in calls}.values())
        self.is_counted = True
        self.task: asyncio.Task[None] | None = None
        for call in calls:
            call.on_leave = self._leave

    def deliver(self, answer: Answer | Failed) -> list[Call]:
        """End the calls; returns those that are missing from the response."""
        missing = []
        for call in self._calls:
            result = answer if isinstance(answer, Failed) else answer.of(call.request.order_id)
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
