"""Tells an outage of the external API from the fault of one order, and stops requests during an outage.

A failure is classified by evidence only. If a request that began later has been answered, the API works, and the order is at
fault. Without evidence, a canary request is sent: for an order that the API has sent before. If it is answered, those that
failed are at fault themselves; if not, the API is unavailable. Until then the failure waits in the evidence window, and the order
keeps its slot. (A process that the API has sent nothing yet can only count: one order is at fault, several without an answer between
them are an outage.)

While the circuit is open, nothing is read, what is in flight is released uncounted, and single requests are sent as probes, with growing
pauses; the first answer closes it. An API that only asks to wait is left the requests that it is processing.
"""

import random
import time
from collections.abc import Awaitable, Callable
from enum import Enum

from ingest.domain.errors import CredentialFault, Fault, NotSent, ThrottledFault, TransientFault
from ingest.domain.fetching import Exchange, FetchRequest
from ingest.flow.circuit import Circuit
from ingest.flow.evidence import EvidenceWindow, ThrottleWindow
from ingest.flow.probe_pauses import ProbePauses
from ingest.telemetry.shared_metrics import Gauge

# This many failures without an answer to anything later are examined at once, fewer after the evidence window.
_MANY = 10
_WINDOW = 1.0


class FaultOf(Enum):
    """Who is at fault."""

    ORDER = "order"
    API = "api"


class CircuitBreaker(Circuit):
    """What this process knows of the external API's health.

    Args:
        request: sends the API a single request; raises a `Fault`.
        gauge: 1 while open.
        concurrency: requests in flight, at most; with few, few failures are many.
        window: seconds for which a failure waits for evidence before a canary request is sent.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments.
    """

    def __init__(
        self,
        request: Callable[[FetchRequest], Awaitable[object]],
        gauge: Gauge,
        concurrency: int,
        *,
        window: float = _WINDOW,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(gauge, ProbePauses(draw, clock), clock)
        self._request = request
        self._window = window
        many = max(2, min(_MANY, concurrency))
        self._failed = EvidenceWindow(many, window, clock)
        self._throttled = ThrottleWindow(many, window)
        self._canary: FetchRequest | None = None
        self._latest_answered = 0.0
        self._answered_at = 0.0
        self._counted: set[str] = set()
        self._counted_at = 0.0

    @property
    def has_canary(self) -> bool:
        """Whether `request_canary` can be used."""
        return self._canary is not None

    def record_success(self, request: FetchRequest, started_at: float) -> None:
        """The API has sent an order that was requested at `started_at`."""
        self._canary = request
        self.record_answer(started_at)

    def record_answer(self, started_at: float) -> None:
        """The API has answered a request that began at `started_at`, if only that its order is at fault."""
        if started_at > self._latest_answered:  # noqa: PLR1730  `max` takes longer, for each order
            self._latest_answered = started_at
        self._answered_at = self._clock()
        self._throttled.orders.clear()
        if self.is_open:
            self.close()
        if self._failed.waiting:
            self._failed.clear_before(started_at)

    async def classify(self, exchange: Exchange, fault: Fault) -> FaultOf:
        """Who is at fault when a request has failed; to find out may take some seconds.

        Raises:
            NotSent: if it cannot be found out, as the process stops.
        """
        if isinstance(fault, ThrottledFault):
            self._record_throttle(exchange, fault)
        elif not self.is_open and not self._has_just_answered_later(exchange.started_at):
            await self._failed.until_classified(exchange, lambda: self._examine(fault))
        # What began during an outage fails because of the outage, however late.
        is_outage = self.is_open or exchange.started_at < self.closed_at
        return FaultOf.API if is_outage else FaultOf.ORDER

    async def request_canary(self) -> None:
        """Request an order that the API has sent before; an answer closes the circuit."""
        if self._canary is None:
            return
        started_at = self._clock()
        try:
            await self._request(self._canary)
        except (TransientFault, CredentialFault, ThrottledFault) as fault:
            self.pauses.told(fault)
        except NotSent:
            return
        except Fault:
            self.record_answer(started_at)
        else:
            self.record_answer(started_at)

    def _has_just_answered_later(self, started_at: float) -> bool:
        """Whether a request that began no earlier was answered lately: what hung since the beginning of an outage fails much later."""
        return started_at <= self._latest_answered and self._clock() <= self._answered_at + self._window

    async def _examine(self, fault: Fault) -> None:
        """Find evidence; afterwards no failure from before is in question."""
        if self._canary is None:
            self._count(fault)
            return
        started_at = self._clock()
        try:
            await self._request(self._canary)
        except (TransientFault, CredentialFault, ThrottledFault) as failed:
            # Unless everything has been classified meanwhile.
            if self._failed.waiting:
                self._open(failed)
        except NotSent:
            raise  # nothing was found out
        except Fault:
            self.record_answer(started_at)
        else:
            self.record_answer(started_at)

    def _count(self, fault: Fault) -> None:
        is_unmistakable = isinstance(fault, CredentialFault) or (
            isinstance(fault, TransientFault) and not fault.reached
        )
        failed = self._failed.apart()
        if self._answered_at <= self._counted_at:
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

    def _open(self, fault: Fault) -> None:
        self.open(fault, self._failed.orders() or len(self._throttled.orders))
        self._throttled.orders.clear()
        self._failed.clear()
