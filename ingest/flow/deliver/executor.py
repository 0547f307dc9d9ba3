"""Processes one delivery: the handler decides its outcome, settlement applies it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import Outcome, Release, Store
from ingest.domain.errors import ASKED_TO_WAIT
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.deliver.handler import Handler
from ingest.flow.held import InFlight
from ingest.flow.pace.pauses import Pacing
from ingest.flow.settle.settlement import Settlement
from ingest.flow.shutdown import Shutdown
from ingest.flow.waiting import first_of
from ingest.telemetry.logs import get_logger

_log = get_logger("executor")
# How long a delivery waits for its turn without looking whether the circuit has opened.
_UNTIL_DUE = 0.25


class Executor:
    """Starts the deliveries of one process.

    Args:
        handler: decides.
        settlement: applies.
        in_flight: holds each delivery until it is settled.
        circuit: whether requests may be sent.
        pacing: when the next request may begin.
        runs_user_code: whether a delivery runs a user's own function. Then each has a task of its own, so that what the function
            leaves in it, such as context variables, does not reach the next order.
    """

    def __init__(
        self,
        handler: Handler,
        settlement: Settlement,
        in_flight: InFlight,
        circuit: CircuitBreaker,
        pacing: Pacing,
        *,
        runs_user_code: bool = False,
    ) -> None:
        self._handler = handler
        self._settlement = settlement
        self._in_flight = in_flight
        self._circuit = circuit
        self._pacing = pacing
        self._runs_user_code = runs_user_code

    def start(self, deliveries: list[Delivery], shutdown: Shutdown) -> None:
        """Process deliveries at the same time, each as soon as a slot is free."""
        process = partial(self._process, partial(self._in_turn, shutdown))
        self._in_flight.start(deliveries, process, apart=self._runs_user_code)

    def start_probe(self, delivery: Delivery) -> asyncio.Task[None]:
        """Process a delivery although the circuit is open, with a single request."""
        return self._in_flight.start_apart(delivery, self._process(self._handler.probe, delivery))

    def start_isolated(self, delivery: Delivery) -> asyncio.Task[None]:
        """Process a delivery that may kill the process, as soon as nothing else is in flight that would be lost with it."""
        _log.warning("entry_isolated", entry_id=delivery.entry.id, deliveries=delivery.count)
        return self._in_flight.start_apart(delivery, self._process(self._when_alone, delivery))

    async def _process(self, decide: Callable[[Delivery], Awaitable[Outcome]], delivery: Delivery) -> None:
        try:
            outcome = await decide(delivery)
            self._in_flight.decided(delivery)
            if isinstance(outcome, Store):
                self._settlement.store(delivery, outcome)
            else:
                await self._settlement.move(delivery, outcome)
        except Exception:  # noqa: BLE001  the one place for it, see below
            # A bug met by one order must not stop the others. The entry stays pending and is delivered again, until
            # Redis has counted too many deliveries.
            _log.exception("delivery_failed", order_id=delivery.order_id, entry_id=delivery.entry.id)
            self._in_flight.remove(delivery)

    def _in_turn(self, shutdown: Shutdown, delivery: Delivery) -> Awaitable[Outcome]:
        # Decided when its task runs, not when it takes a slot: the API may have refused another order between the two.
        return self._when_due(shutdown, delivery) if self._pacing.is_on else self._handler.handle(delivery)

    async def _when_due(self, shutdown: Shutdown, delivery: Delivery) -> Outcome:
        """Handle it when the next request may begin: the API may have asked for a pause while it was being read."""
        if delivery.document is None:
            while (pause := self._pacing.wait()) > 0:
                if self._circuit.is_open or shutdown.requested.is_set():
                    return Release(ASKED_TO_WAIT)
                await shutdown.pause(min(pause, _UNTIL_DUE))
            self._pacing.record_start()
        return await self._handler.handle(delivery)

    async def _when_alone(self, delivery: Delivery) -> Outcome:
        with self._settlement.holding_no_rows():
            alone = asyncio.create_task(self._in_flight.until_at_most(1))
            try:
                await first_of([alone], self._circuit.opened)
            finally:
                alone.cancel()
        if self._circuit.is_open:
            return Release("the external API is unavailable")
        return await self._handler.handle(delivery)
