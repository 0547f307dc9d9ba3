"""Distinguishes an outage of the external API from the fault of an order, and stops requests during an outage.

A failure is classified only by evidence. If the API sends a valid order in response to a later request, it works, and the failed order
is at fault. Without such a response, a canary request is sent for an order that the API has delivered before. If it succeeds, the failed
orders are at fault. Otherwise the API is unavailable. Until then the failure waits in the evidence window, and its order keeps its slot.

A response such as 404, or a document that is not an order, is treated as any other failure, because a broken API may send the same
response for every order. Here a success is evidence only if its request began after the response had arrived.

Without a known order, no canary request is possible, and failures are counted. A single 5xx or timeout is the fault of its order, several
are an outage. Responses that would dead-letter their orders open the circuit as unproven, and an operator must decide.

While the circuit is open, reading stops, the deliveries in flight are released uncounted, and single requests are sent as probes, with
growing pauses. The first valid order closes it. If the API only asks to wait, the requests in progress continue.
"""

import random
import time
from asyncio import Event
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum

from ingest.domain.errors import CredentialFault, Fault, NotSent, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.flow.circuit.evidence import EvidenceWindow, ThrottleWindow
from ingest.flow.circuit.probe_pauses import ProbePauses
from ingest.flow.known_orders import KnownOrders
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Gauge

_log = get_logger("circuit")

# This many failures without a later success are examined immediately, fewer after the evidence window.
_MANY = 10
_WINDOW = 1.0
# For a response that would dead-letter its order. The second request waits for evidence as well, within two seconds in total.
_RESPONSE_WINDOW = 0.5


class FaultOf(Enum):
    """The cause of a failure."""

    ORDER = "order"
    API = "api"


class CircuitBreaker:
    """The health of the external API, as observed by this process.

    Attributes:
        is_open: whether no requests may be sent.
        is_throttled: whether it is open because the API asks to wait.
        is_unproven: whether it is unknown if the API or the orders are at fault.
        error: of the outage, or of the last one.
        opened: set while it is open.
        closed: set while it is closed.
        closed_at: when it closed last.
        pauses: between probes while it is open.

    Args:
        request: sends a canary request, see `known_orders`.
        gauge: 1 while open.
        unproven: 1 while unproven.
        stored: returns IDs of stored orders, for a process that has received no order.
        concurrency: the most requests in flight, which bounds the number of failures that are examined immediately.
        window: seconds for which a failure waits for evidence before a canary request is sent.
        response_window: as `window`, for a response that would dead-letter its order.
    """

    def __init__(
        self,
        request: Callable[[FetchRequest], Awaitable[Fault | None]],
        gauge: Gauge,
        unproven: Gauge,
        stored: Callable[[int], Awaitable[Sequence[str]]],
        concurrency: int,
        *,
        window: float = _WINDOW,
        response_window: float = _RESPONSE_WINDOW,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.is_open = self.is_throttled = self.is_unproven = False
        self.error = ""
        self.opened = Event()
        self.closed = Event()
        self.closed.set()
        self.closed_at = 0.0
        self.pauses = ProbePauses(draw, clock)
        self._opened_at = 0.0
        self._gauge = gauge
        self._unproven = unproven
        self._clock = clock
        self._request = request
        self._window = window
        self._response_window = response_window
        many = max(2, min(_MANY, concurrency))
        self._failed = EvidenceWindow(many, clock)
        self._throttled = ThrottleWindow(many, window)
        self._known = KnownOrders(stored)
        self._canaries_sent = 0
        self._latest_success = 0.0
        self._succeeded_at = 0.0
        self._counted: set[str] = set()
        self._counted_at = 0.0

    def open_for(self) -> float:
        """Seconds since it opened last."""
        return self._clock() - self._opened_at

    def record_success(self, request: FetchRequest, started_at: float) -> None:
        """The API has sent a valid order, requested at `started_at`."""
        self._known.add(request)
        self._record_evidence(started_at)

    async def classify(self, exchange: Exchange, fault: Fault) -> FaultOf:
        """Find the cause of a failed request, which may take some seconds.

        Raises:
            NotSent: if the process stops before the cause is found.
        """
        if isinstance(fault, ThrottledFault):
            self._record_throttle(exchange, fault)
        elif not self.is_open:
            # A request that began before this response arrived may have succeeded before the outage began.
            since, window = exchange.started_at, self._window
            if isinstance(fault, PermanentFault):
                since, window = self._clock(), self._response_window
            if not self._has_just_succeeded_later(since):
                await self._failed.until_classified(exchange, since, window, lambda: self._examine(fault))
        # A request that began during an outage fails because of it, however late.
        is_outage = self.is_open or exchange.started_at < self.closed_at
        return FaultOf.API if is_outage else FaultOf.ORDER

    async def next_canary(self) -> FetchRequest | None:
        """The next known order for a canary request while the circuit is open, or None without a known order."""
        known = await self._known.candidates()
        self._canaries_sent += 1
        return known[self._canaries_sent % len(known)] if known else None

    async def request_canary(self, canary: FetchRequest) -> None:
        """Request a known order. A valid response closes the circuit."""
        started_at = self._clock()
        fault = await self._request(canary)
        if fault is None:
            self._record_evidence(started_at)
        else:
            self.pauses.observe(fault)

    def _record_evidence(self, started_at: float) -> None:
        self._latest_success = max(self._latest_success, started_at)
        self._succeeded_at = self._clock()
        self._throttled.orders.clear()
        if self.is_open:
            self._close()
        if self._failed.waiting:
            self._failed.clear_before(started_at)

    def _has_just_succeeded_later(self, since: float) -> bool:
        """Whether a request that began at `since` or later has just succeeded. A request may hang for long before it fails."""
        return since <= self._latest_success and self._clock() <= self._succeeded_at + self._window

    async def _examine(self, fault: Fault) -> None:
        """Search for evidence, which classifies all failures so far."""
        known = await self._known.candidates(self._failed.orders())
        for canary in known:
            started_at = self._clock()
            match await self._request(canary):
                case None:
                    self._record_evidence(started_at)
                    return
                case NotSent() as inconclusive:
                    raise inconclusive
                case TransientFault() | CredentialFault() | ThrottledFault() as failed:
                    fault = failed
                    break
                case _:
                    continue  # the order may have been deleted since
        if not self._failed.waiting:
            return
        if known:
            self._open(fault)
        else:
            self._count(fault)

    def _count(self, fault: Fault) -> None:
        """Decide without evidence. One failure is the fault of its order, several are an outage, and a response is unproven."""
        if isinstance(fault, PermanentFault):
            self._open(fault, is_unproven=True)
            return
        is_unmistakable = isinstance(fault, CredentialFault) or (
            isinstance(fault, TransientFault) and not fault.reached
        )
        failed = self._failed.first_orders()
        if self._succeeded_at <= self._counted_at:
            # With one request in flight, the requests of an outage fail one after the other.
            failed |= self._counted
        if is_unmistakable or len(failed) > 1:
            self._open(fault)
        else:
            self._counted, self._counted_at = failed, self._clock()
            self._failed.clear()

    def _record_throttle(self, exchange: Exchange, fault: ThrottledFault) -> None:
        self.pauses.observe(fault)
        if not self.is_open and self._throttled.record(exchange, self._clock()):
            self._open(fault)

    def _open(self, fault: Fault, *, is_unproven: bool = False) -> None:
        self.error = str(fault)
        if isinstance(fault, PermanentFault) and fault.shape:
            self.error += f"; the response is {fault.shape}"
        if is_unproven:
            self.error += "; the external API has not delivered any known order"
        self.is_open = True
        self.is_throttled = isinstance(fault, ThrottledFault)
        self.is_unproven = is_unproven
        self._unproven.set(float(is_unproven))
        self._gauge.set(1.0)
        self.closed.clear()
        self.opened.set()
        self._opened_at = self._clock()
        self.pauses.restart(fault)
        # An operator must correct a credential, or decide about the orders. Other outages pass.
        log = _log.error if is_unproven or isinstance(fault, CredentialFault) else _log.warning
        log("circuit_opened", error=self.error, orders=len(self._failed.orders()) or len(self._throttled.orders))
        self._throttled.orders.clear()
        self._failed.clear()

    def _close(self) -> None:
        self.is_open = self.is_unproven = False
        self._unproven.set(0.0)
        self._gauge.set(0.0)
        self.opened.clear()
        self.closed.set()
        self.pauses.forget()
        self.closed_at = self._clock()
        _log.info("circuit_closed", seconds=round(self.closed_at - self._opened_at, 1))
