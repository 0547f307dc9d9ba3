"""A circuit, which is open while no requests may be sent to the external API."""

import time
from asyncio import Event
from collections.abc import Callable

from ingest.domain.errors import CredentialFault, Fault, ThrottledFault
from ingest.flow.circuit.probe_pauses import ProbePauses
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Gauge

_log = get_logger("circuit")


class Circuit:
    """Whether requests may be sent. `CircuitBreaker` decides it.

    Attributes:
        is_open: whether no requests may be sent.
        is_throttled: whether it is open because the API asks to wait.
        is_unproven: whether it is unknown if the API or the orders are at fault, see `Outage`.
        error: of the outage, or of the last one.
        opened: set while it is open.
        closed: set while it is closed.
        closed_at: when it closed last.
        pauses: between probes while it is open.

    Args:
        gauge: 1 while open.
        unproven: 1 while it is unproven.
        pauses: of its outages.
        clock: monotonic seconds.
    """

    def __init__(
        self, gauge: Gauge, unproven: Gauge, pauses: ProbePauses, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gauge = gauge
        self._unproven = unproven
        self._clock = clock
        self._opened_at = 0.0
        self.pauses = pauses
        self.closed_at = 0.0
        self.opened = Event()
        self.closed = Event()
        self.closed.set()
        self.is_open = False
        self.is_throttled = False
        self.is_unproven = False
        self.error = ""

    def open(self, fault: Fault, error: str, orders: int, *, is_unproven: bool = False) -> None:
        """Stop requests because of a fault of this many orders, which `error` describes."""
        self.is_open = True
        self.error = error
        self.is_unproven = is_unproven
        self._unproven.set(float(is_unproven))
        self.closed.clear()
        self.opened.set()
        self._gauge.set(1.0)
        self._opened_at = self._clock()
        self.pauses.restart(fault)
        self.is_throttled = isinstance(fault, ThrottledFault)
        # An operator must correct a credential, or decide about the orders. Other outages pass.
        log = _log.error if is_unproven or isinstance(fault, CredentialFault) else _log.warning
        log("circuit_opened", error=error, orders=orders)

    def close(self) -> None:
        """Allow requests again."""
        self.is_open = self.is_unproven = False
        self._unproven.set(0.0)
        self.opened.clear()
        self.closed.set()
        self._gauge.set(0.0)
        self.pauses.forget()
        self.closed_at = self._clock()
        _log.info("circuit_closed", seconds=round(self.closed_at - self._opened_at, 1))
