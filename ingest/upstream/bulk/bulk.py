"""Fetches several orders with one HTTP request, from an API with a list endpoint.

Waiting orders share a request. While no request is in flight, the calls of one iteration of the event loop are sent immediately, so that
a single order does not wait. Otherwise calls that do not fill a request wait up to 10 ms for others, because a small request would be
followed by another small one. They also wait while as many requests are in flight as all orders of the process would fill. A request
that takes much longer than the last response does not count, so that one order that hangs does not hold up others.

Each call ends with the result of its order:

* An order that is missing from the response does not exist. If the response contains other requested orders, it may have been cut to a
  page, so the missing orders are requested once more. Only an empty response proves that they do not exist. A response with other
  orders only is unrelated, because the API ignores the IDs, or they are read from the wrong member.
* If the request as a whole fails, all of its calls fail with `Failed.is_shared` and one `Exchange`, which counts as one failed request.
  The flow decides whether the API is at fault. If it is not, the flow calls again with half of the orders per request, so that an order
  that breaks the response for others is isolated within log2(n) steps.

A fetch has no side effects. If it is cancelled or the process dies, nothing has happened.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol, Self

import msgspec

from ingest.domain.errors import NotSent
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.telemetry.logs import get_logger
from ingest.upstream.bulk.bulk_request import BulkResponse, Fetch, Flight, request_together
from ingest.upstream.bulk.bulk_response import BulkResponseReader
from ingest.upstream.bulk.bulk_waiting import WaitingCall, WaitingCalls
from ingest.upstream.parts import Fetches

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
        client: fetches the URL of a list. The order ID of its requests is several IDs, separated by `SEPARATOR`.
        pace: how fast requests may follow each other. None for no limit.
        clock: monotonic seconds, the clock of the circuit breaker.
    """

    def __init__(
        self,
        client: Fetches,
        options: BulkOptions,
        pace: BulkPace | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._pace = pace
        self._most = options.requests
        self._reader = BulkResponseReader(options.path, options.id_path, options.size)
        self._body_limit = options.body
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting = WaitingCalls(options.size, options.url_length)
        self._flights: set[Flight] = set()
        self._next_send: asyncio.Handle | None = None
        self._gathers_until: float | None = None
        self._last_seconds = 0.0
        self._has_warned = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drop the requests in flight."""
        if self._next_send is not None:
            self._next_send.cancel()
        running = [flight.task for flight in self._flights]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def run(self) -> None:
        """See `FleetPart`. There is no lease to keep."""
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """The process stops. Calls that wait for a pause to end are not sent any more."""
        self._is_closed = True
        self._send_soon()

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """See `Upstream`. The HTTP request may be sent for other orders as well."""
        call = WaitingCall(request, self._loop.create_future())
        self._waiting.add(call)
        self._send_soon()
        return await call.ended

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """See `Upstream`. The HTTP request is sent for this order only."""
        result = await self._request((request,), self._client.fetch_once)
        if isinstance(result, Failed):
            return result
        found = result.of(request.order_id)
        if found is None:
            raise AssertionError("a response to a request for one order contains it or not")
        return found

    async def _request(self, requests: Sequence[FetchRequest], fetch: Fetch) -> BulkResponse | Failed:
        return await request_together(requests, fetch, self._reader, self._body_limit)

    def _send_soon(self) -> None:
        """Send with the other calls of this turn of the loop."""
        if self._next_send is not None:
            self._next_send.cancel()
        self._next_send = self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Send the waiting calls, as far as they may be sent now, and look again when more may be."""
        while (delay := self._delay()) <= 0:
            if calls := self._waiting.take():
                self._begin(calls)
        self._next_send = self._loop.call_later(delay, self._send) if delay < math.inf else None

    def _delay(self) -> float:
        """Seconds until the next request may begin: 0 or less for now, infinite until there is another call or response."""
        if not self._waiting:
            self._gathers_until = None
            return math.inf
        if not self._has_room():
            return math.inf
        if self._pace is not None and (pause := self._pace.request_delay()) > 0:
            if self._is_closed:
                self._drop_waiting()
            return min(pause, _LOOK_AGAIN)
        if self._flights and not self._waiting.fills_request:
            self._gathers_until = self._gathers_until or self._loop.time() + _GATHER
            return self._gathers_until - self._loop.time()
        self._gathers_until = None
        return 0.0

    def _drop_waiting(self) -> None:
        while calls := self._waiting.take():
            for call in calls:
                call.end(Failed(NotSent(), Exchange((call.request,), self._clock())))

    def _has_room(self) -> bool:
        if sum(flight.is_counted for flight in self._flights) >= self._most:
            return False
        # While the API throttles, also those count that take long.
        return self._pace is None or self._pace.requests >= self._most or len(self._flights) < self._pace.requests

    def _begin(self, calls: Sequence[WaitingCall]) -> None:
        if self._pace is not None:
            self._pace.record_request()
        flight = Flight(calls, self._run)
        self._flights.add(flight)
        # A task that is cancelled before it begins ends as well.
        flight.task.add_done_callback(lambda _: self._ended(flight))

    async def _run(self, flight: Flight) -> None:
        began = self._loop.time()
        timer = self._loop.call_later(max(_LONG, _MUCH_LONGER * self._last_seconds), self._uncount, flight)
        try:
            response = await self._request(flight.requests, self._client.fetch)
        except Exception as bug:  # noqa: BLE001  each caller reports it for its own order
            flight.fail(bug)
        else:
            if isinstance(response, BulkResponse):
                self._last_seconds = self._loop.time() - began
            self._request_again(flight.deliver(response), flight)
        finally:
            timer.cancel()

    def _request_again(self, missing: Sequence[WaitingCall], flight: Flight) -> None:
        for call in missing:
            if call.is_missing and not self._has_warned:
                # Others that were missing with it have come now.
                self._has_warned = True
                _log.warning("bulk_response_incomplete", requested=len(flight.requests), missing=len(missing))
            call.is_missing = True
            self._waiting.add(call)

    def _uncount(self, flight: Flight) -> None:
        """The request holds up others no longer, because it takes too long."""
        flight.is_counted = False
        self._send_soon()

    def _ended(self, flight: Flight) -> None:
        self._flights.discard(flight)
        if flight.task.cancelled():
            flight.cancel()
        self._send_soon()
