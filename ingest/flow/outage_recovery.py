"""Handles an outage of the external API: releases the deliveries in flight, and probes until a request succeeds.

While the source is paused, nothing is probed.
"""

import asyncio

from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.deliver.executor import Executor
from ingest.flow.deliver.gate import Gate
from ingest.flow.held import Held
from ingest.flow.pace.pace import Pace
from ingest.flow.read.reader import Reader
from ingest.flow.settle.moves import Moves
from ingest.flow.shutdown import Shutdown
from ingest.flow.waiting import all_ended, ended_before, first_of
from ingest.telemetry.activity import record_activity

# Without a known order, each probe takes an order from twice as far ahead in the queue as the last one, because the first orders may
# all be bad. The entries in between are released: at most this many in an outage, because Redis keeps a record of each.
_MOST_PASSED = 1000
# Probes that may hang concurrently. With the longest pause between them, this many begin within the longest request timeout.
_MOST_PROBES = 8


class OutageRecovery:
    """The recovery of one process, from when its circuit opens until it closes."""

    def __init__(
        self,
        circuit: CircuitBreaker,
        pace: Pace,
        reader: Reader,
        executor: Executor,
        moves: Moves,
        held: Held,
        gate: Gate,
    ) -> None:
        self._gate = gate
        self._circuit = circuit
        self._pace = pace
        self._reader = reader
        self._executor = executor
        self._moves = moves
        self._held = held
        self._is_canary_due = False
        self._ahead = self._passed = 0

    async def run(self, shutdown: Shutdown) -> None:
        """Send only probes until one succeeds, or a stop is requested."""
        self._ahead = self._passed = 0
        await self._interrupt(shutdown)
        probes: list[asyncio.Task[None]] = []
        while self._circuit.is_open and not shutdown.requested.is_set():
            await self._pause(shutdown)
            if self._circuit.closed.is_set() or shutdown.requested.is_set():
                break
            if self._gate.is_paused:
                record_activity()
                continue
            probes = self._undecided(probes)
            if len(probes) == _MOST_PROBES:
                await self._cancel([probes.pop(0)], shutdown)
            probes += await self._probe(shutdown)
        # A probe has succeeded. Probes that hang would only occupy their slots.
        await self._cancel(self._undecided(probes), shutdown)
        self._moves.log_released()
        self._pace.restart()

    async def _pause(self, shutdown: Shutdown) -> None:
        pauses = self._circuit.pauses
        pause = pauses.next()
        # The response to the last probe may ask to wait.
        while pause > 0 and not (self._circuit.closed.is_set() or shutdown.requested.is_set()):
            await first_of([], shutdown.requested, self._circuit.closed, within=pause)
            pause = pauses.left()

    async def _interrupt(self, shutdown: Shutdown) -> None:
        """Release the deliveries in flight. If the API only asks to wait, the requests in progress continue."""
        started = [task for _, task in self._held.undecided()]
        await self._cancel([] if self._circuit.is_throttled else started, shutdown)

    async def _cancel(self, tasks: list[asyncio.Task[None]], shutdown: Shutdown) -> None:
        """Cancel tasks and release their undecided deliveries. A request to stop ends the wait for Redis."""
        for task in tasks:
            task.cancel()
        await all_ended(tasks)
        interrupted = [delivery for delivery, task in self._held.undecided() if task.done()]
        if interrupted:
            await ended_before(self._moves.release(interrupted), shutdown.requested)

    async def _probe(self, shutdown: Shutdown) -> list[asyncio.Task[None]]:
        """Request one order, alternating between a known order and one from the queue.

        The orders in the queue may be the cause of the failures, and a known order may have been deleted.
        """
        record_activity()
        self._is_canary_due = not self._is_canary_due
        if self._is_canary_due:
            canary = await self._circuit.next_canary()
            if canary is not None:
                return [asyncio.create_task(self._circuit.request_canary(canary))]
            self._is_canary_due = False
            return await self._probe_queue(self._go_ahead(), shutdown)
        return await self._probe_queue(0, shutdown)

    async def _probe_queue(self, ahead: int, shutdown: Shutdown) -> list[asyncio.Task[None]]:
        deliveries = await self._reader.read_probe(shutdown, ahead)
        return [self._executor.start_probe(delivery) for delivery in deliveries]

    def _go_ahead(self) -> int:
        """How many new entries the next probe skips."""
        self._ahead = min(2 * self._ahead + 1, _MOST_PASSED - self._passed)
        self._passed += self._ahead
        return self._ahead

    def _undecided(self, probes: list[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        """The probes that may be cancelled, because they are not applying an outcome."""
        decided = self._held.decided_tasks()
        return [probe for probe in probes if not probe.done() and probe not in decided]
