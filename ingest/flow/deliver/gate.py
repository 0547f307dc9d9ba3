"""Whether an order may be requested now.

It may not while the circuit is open, the external API asks to wait, an operator has paused the source, or the process stops.
"""

import asyncio
from collections.abc import Callable

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import Release
from ingest.domain.errors import ASKED_TO_WAIT
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.followed_controls import SourceControls
from ingest.flow.pace.pace import Pace
from ingest.flow.shutdown import Shutdown

# How long a delivery waits without a check of the circuit.
_CHECK_EVERY = 0.25
# How long nothing is read while the source is paused. Its end wakes the scheduler.
_PAUSE_STEP = 1.0
UNAVAILABLE = "the external API is unavailable"


class Gate:
    """The one place that admits orders.

    Args:
        circuit: while it is open, no order is requested.
        pace: asks to wait between orders.
        controls: of the source, which an operator may have paused.
    """

    def __init__(self, circuit: CircuitBreaker, pace: Pace, controls: SourceControls) -> None:
        self._circuit = circuit
        self._pace = pace
        self._controls = controls

    @property
    def is_closed(self) -> bool:
        """Whether no order may be requested until the circuit closes."""
        return self._circuit.is_open

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused the source, or drained the process."""
        return self._controls.is_paused

    def delay(self) -> float:
        """Seconds until the next order may be requested, while the gate is open. 0 or less for now."""
        if self._controls.is_paused:
            return _PAUSE_STEP
        return self._pace.delay()

    async def admit_undelivered(self, on_wait: Callable[[str], None]) -> None:
        """Wait until an order that no delivery contains may be requested. `on_wait` is called with the reason, again and again."""
        while (pause := self.delay()) > 0 or self._circuit.is_open:
            on_wait(UNAVAILABLE if self._circuit.is_open else self._controls.reason or ASKED_TO_WAIT)
            await asyncio.sleep(min(max(pause, 0.0) or _CHECK_EVERY, _CHECK_EVERY))
        self._pace.record_order()

    async def admit(self, delivery: Delivery, shutdown: Shutdown) -> Release | None:
        """Wait until a delivery may be handled, and return its release if it must not be.

        The API may have asked for a pause while the delivery was being read. A pushed document needs no request, so that it waits
        for no pause.
        """
        if self._circuit.is_open:
            return Release(UNAVAILABLE)
        if self._controls.is_paused:
            return Release(self._controls.reason)
        if delivery.document is not None:
            return None
        while (pause := self._pace.delay()) > 0:
            await shutdown.pause(min(pause, _CHECK_EVERY))
            if self._circuit.opened.is_set() or shutdown.requested.is_set():
                return Release(ASKED_TO_WAIT)
            if self._controls.paused.is_set():
                return Release(self._controls.reason)
        self._pace.record_order()
        return None
