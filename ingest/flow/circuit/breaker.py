"""Tells an outage of the external API from the fault of one order, and stops requests during an outage.

A failure is classified by evidence only: a valid order that the API has sent in response to a later request. Then the API works, and
the order that failed is at fault. Without such evidence, a canary request is sent: for an order that the API has delivered before.
If it brings that order, those that failed are at fault themselves; if not, the API is unavailable. Until then the failure waits in the
evidence window, and the order keeps its slot.

A response such as 404, or a document that is no order, is a failure like any other: an API that fails as a whole may send the same
response for every order. For it, a success is evidence only if it began after the response had come.

Without a known order there can be no canary request. Then failures are counted: one 5xx or timeout is the order's fault, several are
an outage. Responses that would dead-letter their orders open the circuit, which is then unproven: an operator has to decide.

While the circuit is open, nothing is read, what is in flight is released uncounted, and single requests are sent as probes, with growing
pauses; the first valid order closes it. An API that only asks to wait is left the requests that it is processing.
"""

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum

from ingest.domain.errors import CredentialFault, Fault, NotSent, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.orders.order import InvalidDocument
from ingest.flow.circuit.circuit import Circuit
from ingest.flow.circuit.evidence import EvidenceWindow, ThrottleWindow
from ingest.flow.circuit.probe_pauses import ProbePauses
from ingest.flow.known_orders import KnownOrders
from ingest.telemetry.shared_metrics import Gauge

# This many failures without an answer to anything later are examined at once, fewer after the evidence window.
_MANY = 10
_WINDOW = 1.0
# For a response that would dead-letter its order: its second request waits for evidence as well, and two seconds are to be enough.
_RESPONSE_WINDOW = 0.5


class FaultOf(Enum):
    """Who is at fault."""

    ORDER = "order"
    API = "api"


class CircuitBreaker(Circuit):
    """What this process knows of the external API's health.

    Args:
        request: sends the API a canary request, see `known_orders`; raises a `Fault` or `InvalidDocument`.
        gauge: 1 while open.
        unproven: 1 while unproven.
        stored: returns IDs of stored orders, for a process that has received none.
        concurrency: requests in flight, at most; with few, few failures are many.
        window: seconds for which a failure waits for evidence before a canary request is sent.
        response_window: the same for a response that would dead-letter its order.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments.
    """

    def __init__(
        self,
        request: Callable[[FetchRequest], Awaitable[object]],
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
        super().__init__(gauge, unproven, ProbePauses(draw, clock), clock)
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

    def record_success(self, request: FetchRequest, started_at: float) -> None:
        """The API has sent a valid order, requested at `started_at`."""
        self._known.add(request)
        self._record_evidence(started_at)

    async def classify(self, exchange: Exchange, fault: Fault) -> FaultOf:
        """Who is at fault when a request has failed; to find out may take some seconds.

        Raises:
            NotSent: if it cannot be found out, as the process stops.
        """
        if isinstance(fault, ThrottledFault):
            self._record_throttle(exchange, fault)
        elif not self.is_open:
            # A request that began before the response came may have been answered before an outage that the response is part of.
            since, window = exchange.started_at, self._window
            if isinstance(fault, PermanentFault):
                since, window = self._clock(), self._response_window
            if not self._has_just_succeeded_later(since):
                await self._failed.until_classified(exchange, since, window, lambda: self._examine(fault))
        # What began during an outage fails because of the outage, however late.
        is_outage = self.is_open or exchange.started_at < self.closed_at
        return FaultOf.API if is_outage else FaultOf.ORDER

    async def next_canary(self) -> FetchRequest | None:
        """An order for a canary request while the circuit is open, in turn one of those known; None if none is."""
        known = await self._known.candidates()
        self._canaries_sent += 1
        return known[self._canaries_sent % len(known)] if known else None

    async def request_canary(self, canary: FetchRequest) -> None:
        """Request an order that the API has delivered before; a valid order closes the circuit."""
        started_at = self._clock()
        try:
            await self._request(canary)
        except NotSent:
            return
        except (Fault, InvalidDocument) as failed:
            if isinstance(failed, Fault):
                self.pauses.told(failed)
        else:
            self._record_evidence(started_at)

    def _record_evidence(self, started_at: float) -> None:
        if started_at > self._latest_success:  # noqa: PLR1730  `max` takes longer, for each order
            self._latest_success = started_at
        self._succeeded_at = self._clock()
        self._throttled.orders.clear()
        if self.is_open:
            self.close()
        if self._failed.waiting:
            self._failed.clear_before(started_at)

    def _has_just_succeeded_later(self, since: float) -> bool:
        """Whether a request that began no earlier succeeded lately: what hung since the beginning of an outage fails much later."""
        return since <= self._latest_success and self._clock() <= self._succeeded_at + self._window

    async def _examine(self, fault: Fault) -> None:
        """Find evidence; afterwards no failure from before is in question."""
        known = await self._known.candidates(self._failed.orders())
        for canary in known:
            started_at = self._clock()
            try:
                await self._request(canary)
            except NotSent:
                raise  # nothing was found out
            except (TransientFault, CredentialFault, ThrottledFault) as failed:
                fault = failed
                break
            except (Fault, InvalidDocument):
                continue  # it may have been deleted since
            self._record_evidence(started_at)
            return
        # Unless everything has been classified meanwhile.
        if not self._failed.waiting:
            return
        if known:
            self._open(fault)
        else:
            self._count(fault)

    def _count(self, fault: Fault) -> None:
        """Without evidence: one failure is its order's, several are an outage; a response for which an order would be dead is neither."""
        if isinstance(fault, PermanentFault):
            self._open(fault, is_unproven=True)
            return
        is_unmistakable = isinstance(fault, CredentialFault) or (
            isinstance(fault, TransientFault) and not fault.reached
        )
        failed = self._failed.apart()
        if self._succeeded_at <= self._counted_at:
            # With one request at a time, those of an outage fail one after the other.
            failed |= self._counted
        if is_unmistakable or len(failed) > 1:
            self._open(fault)
        else:
            self._counted, self._counted_at = failed, self._clock()
            self._failed.clear()

    def _record_throttle(self, exchange: Exchange, fault: ThrottledFault) -> None:
        self.pauses.told(fault)
        if not self.is_open and self._throttled.record(exchange, self._clock()):
            self._open(fault)

    def _open(self, fault: Fault, *, is_unproven: bool = False) -> None:
        error = str(fault)
        if isinstance(fault, PermanentFault) and fault.shape:
            error += f"; the response is {fault.shape}"
        if is_unproven:
            error += "; the external API has not delivered any known order"
        orders = len(self._failed.orders()) or len(self._throttled.orders)
        self.open(fault, error, orders, is_unproven=is_unproven)
        self._throttled.orders.clear()
        self._failed.clear()
