"""Keeps all requests of this process within the quota that it shares with others.

`acquire` returns when a request may be sent, in the order of the calls, and `release` ends it. The share of this process is leased from
`QuotaLeases` several times a second while there are requests. Waiting is neither a timeout nor a fault.

If the process dies here, its lease expires on the server.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from ingest.domain.errors import ASKED_TO_WAIT, NotSent, Unavailable, UserError
from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits
from ingest.telemetry.activity import record_activity
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Gauge, Histogram
from ingest.upstream.http.replacement import Send
from ingest.upstream.http.transport import Method, OnHead
from ingest.upstream.quota.point_rate import PointRate, cost_of
from ingest.upstream.quota.quota_share import Share
from ingest.upstream.rate_limit_headers import permitted_rate, remaining_of
from ingest.upstream.responses import api_time

_log = get_logger("quota")
# Seconds for which a rate in a header applies, unless a later response contains another one.
_RATE_HOLDS = 600.0
# For the end of the lease, when the process stops.
_LAST_WAIT = 1.0


class QuotaLeases(Protocol):
    """Who leases the quota: `ingest.queue.consume.quota`. Its methods raise `Unavailable` while it cannot be used."""

    async def lease(self, request: LeaseRequest) -> Lease:
        """Renew this process's lease, and adapt it to the current demand."""

    async def end(self, unused: int) -> None:
        """End the lease, which leaves the rest of it to the others."""


class FleetQuota:
    """This process's part of the quota.

    Args:
        longest: seconds after which a request has ended.
        gauges: the granted rate and concurrency, by kind.
        now: the clock, for an API that names times without its own time.
        on_exhausted: called with the seconds for which the API's quota is used up, by its headers.
        clock: seconds that include the time that the machine sleeps.
    """

    def __init__(
        self,
        leases: QuotaLeases,
        limits: QuotaLimits,
        longest: float,
        waits: Histogram,
        gauges: Mapping[str, Gauge],
        now: Callable[[], datetime],
        on_exhausted: Callable[[float], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        self._limits = limits
        self._share = Share(limits, longest)
        self._points = PointRate(limits) if limits.cost else None
        self._waits = waits
        self._gauges = gauges
        self._now = now
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._changed = asyncio.Event()
        self._asks_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._on_exhausted = on_exhausted
        self._is_unavailable = self._is_closed = False

    # -- requests -------------------------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Wait until a request may be sent.

        Raises:
            NotSent: the process stops, or there is a pause.
        """
        if self._is_closed:
            raise NotSent
        began_at = self._clock()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._send_due()
        try:
            await turn
        except asyncio.CancelledError:
            self._leave(turn)
            raise
        self._waits.observe(self._clock() - began_at)

    def release(self) -> None:
        """A request has ended, whatever became of it."""
        self._share.end()
        if self._waiting:
            self._send_due()

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits for its turn."""
        return bool(self._waiting)

    def read_ahead(self) -> int:
        """How many orders this process should hold, at most."""
        return self._share.read_ahead()

    def observe(self, status: int, headers: Mapping[str, str]) -> None:
        """Slow the fleet down to the rate in the API's headers, or so that the rest of its quota lasts until it is full again."""
        del status
        if self._limits.rate_header and (rate := permitted_rate(headers, self._limits.rate_header)):
            self._share.rate.slow_down(rate, _RATE_HOLDS, self._clock())
        left = remaining_of(headers, api_time(headers, self._now()).timestamp())
        if left is None:
            return
        if not left.requests:
            self._on_exhausted(left.seconds)
        else:
            self._share.rate.slow_down(left.rate, left.seconds, self._clock())

    def watched(self, send: Send) -> Send:
        """Return a method of a transport that also observes the cost of each response, if the API counts points."""
        points = self._points
        if points is None:
            return send

        async def sent(
            url: str, headers: Mapping[str, str], method: Method, body: bytes | None, on_head: OnHead | None
        ) -> bytes:
            document = await send(url, headers, method, body, on_head)
            self._observe_cost(document, points)
            return document

        return sent

    def _observe_cost(self, document: bytes, points: PointRate) -> None:
        """Adapt the rate to the cost of requests and to the points that are left."""
        cost = cost_of(document)
        if cost is not None:
            points.learn(cost, self._clock())
            if cost.wait:
                self._on_exhausted(cost.wait)
        self._share.rate.adapt(points.requests(self._clock()))

    def turn_away(self, reason: str = ASKED_TO_WAIT) -> None:
        """During a pause, waiting requests are not sent, because their turn may come before the pause ends."""
        self._end_waiting(reason)

    def close(self) -> None:
        """The process stops. Waiting requests are not sent any more."""
        self._is_closed = True
        self._end_waiting("the process stops")

    def _end_waiting(self, reason: str) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(NotSent(reason))

    def _leave(self, turn: "asyncio.Future[None]") -> None:
        if turn.cancelled():
            with suppress(ValueError):
                self._waiting.remove(turn)
        elif turn.exception() is None:
            # Cancelled between its turn and its start, it leaves the place to the next.
            self.release()

    def _send_due(self) -> None:
        """Let those that wait begin, as far as they may now, and look again when the next one may."""
        now, delay = self._clock(), math.inf
        while self._waiting and (delay := self._share.delay(now)) <= 0:
            turn = self._waiting.popleft()
            if not turn.done():
                self._share.begin()
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and delay < math.inf:
            self._timer = asyncio.get_running_loop().call_later(delay, self._send_due)
        if self._share.due(now, len(self._waiting)) < self._asks_at:
            self._changed.set()

    # -- leases ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the lease until cancelled."""
        try:
            while True:
                await self._until_due()
                await self._ask()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def end(self) -> None:
        """End the lease when no request is in flight. If that fails, it expires."""
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(_LAST_WAIT):
                await self._leases.end(self._share.leave())

    async def _until_due(self) -> None:
        while (due := self._share.due(now := self._clock(), len(self._waiting))) > now:
            self._asks_at = due
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(due - now if due < math.inf else None):
                    await self._changed.wait()
        self._asks_at = -math.inf

    async def _ask(self) -> None:
        if self._points is not None and self._points.is_known:
            self._share.rate.adapt(self._points.requests(self._clock()))
        request = self._share.request(self._clock(), len(self._waiting))
        # Orders that wait for the quota are not stuck, however long it takes.
        record_activity()
        try:
            lease = await self._leases.lease(request)
        except Unavailable as error:
            self._share.failed(self._clock())
            if self._share.is_without_server and not self._is_unavailable:
                log = _log.error if isinstance(error, UserError) else _log.warning
                log("quota_unavailable", error=str(error))
                self._is_unavailable = True
        else:
            self._share.granted(request, lease, self._clock())
            if self._is_unavailable:
                _log.info("quota_available")
            self._is_unavailable = False
        self._gauges["rate"].set(self._share.granted_rate)
        # Without a limit, every request is granted.
        self._gauges["concurrency"].set(self._share.limit_at(self._clock()) if self._limits.concurrency else 0.0)
        self._send_due()
