"""Processes deliveries: the handler decides the outcome, and settlement applies it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import Outcome, Release, Store
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.deliver.gate import Gate
from ingest.flow.deliver.handler import Handler
from ingest.flow.deliver.scheduler import Scheduler, Turn
from ingest.flow.held import Held
from ingest.flow.isolation import SourceIsolation
from ingest.flow.settle.settlement import Settlement
from ingest.flow.shutdown import Shutdown
from ingest.flow.waiting import ended_before
from ingest.telemetry.logs import get_logger

_log = get_logger("executor")


class Executor:
    """Starts the deliveries of one source in one process.

    Args:
        isolation: of its entries from other sources.
    """

    def __init__(
        self,
        handler: Handler,
        settlement: Settlement,
        held: Held,
        scheduler: Scheduler,
        gate: Gate,
        circuit: CircuitBreaker,
        isolation: SourceIsolation,
    ) -> None:
        self._isolation = isolation
        self._handler = handler
        self._settlement = settlement
        self._held = held
        self._scheduler = scheduler
        self._gate = gate
        self._circuit = circuit

    def start(self, deliveries: list[Delivery], shutdown: Shutdown) -> None:
        """Process deliveries concurrently."""

        def process(delivery: Delivery, turn: Turn) -> Coroutine[Any, Any, None]:
            return self._process(delivery, partial(self._admitted, shutdown, turn))

        self._scheduler.start_in_turn(deliveries, process)

    def start_probe(self, delivery: Delivery) -> asyncio.Task[None]:
        """Process a delivery although the circuit is open, with a single request."""
        return self._scheduler.start(delivery, self._process(delivery, self._handler.probe))

    def start_isolated(self, delivery: Delivery) -> asyncio.Task[None]:
        """Process a delivery that may kill the process, as soon as no other delivery of the source is in flight."""
        _log.warning("entry_isolated", entry_id=delivery.entry.id, deliveries=delivery.count)
        return self._scheduler.start(delivery, self._process(delivery, self._when_alone))

    async def _process(self, delivery: Delivery, decide: Callable[[Delivery], Awaitable[Outcome]]) -> None:
        self._held.traces.bind_logs(delivery)
        try:
            outcome = await decide(delivery)
            self._held.mark_decided(delivery)
            if isinstance(outcome, Store):
                self._settlement.store(delivery, outcome)
            else:
                await self._settlement.move(delivery, outcome)
        except Exception:  # noqa: BLE001  the one place for it, see below
            # A bug in processing one order must not stop the others. The entry stays pending and is delivered again until
            # Redis has counted too many deliveries.
            _log.exception("delivery_failed", order_id=delivery.order_id, entry_id=delivery.entry.id)
            self._held.remove(delivery)

    async def _admitted(self, shutdown: Shutdown, turn: Turn, delivery: Delivery) -> Outcome:
        if turn is not None:
            await turn
        return await self._gate.admit(delivery, shutdown) or await self._handler.handle(delivery)

    async def _when_alone(self, delivery: Delivery) -> Outcome:
        with self._settlement.holding_no_rows():
            await ended_before(self._held.until_at_most(1), self._circuit.opened)
        # Only then, because other sources claim nothing from here on.
        async with self._isolation.alone() as is_alone:
            if not is_alone:
                return Release("another source isolates an entry")
            if self._circuit.is_open:
                return Release("the external API is unavailable")
            return await self._handler.handle(delivery)
