"""While the external API is unavailable: releases what is in flight, and probes until a request is answered."""

import asyncio

from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.deliver.executor import Executor
from ingest.flow.held import Held
from ingest.flow.pace.pace import Pace
from ingest.flow.read.reader import Reader
from ingest.flow.settle.settlement import Settlement
from ingest.flow.shutdown import Shutdown
from ingest.flow.waiting import all_ended, first_of
from ingest.telemetry.activity import record_activity

# Without a known order, each probe takes an order from twice as far ahead in the queue as the last: the first ones may all be bad.
# The entries in between are released, no more than this many in an outage, since Redis keeps a record of each.
_MOST_PASSED = 1000
# Probes that may hang at once: with the longest pause between them, as many as begin within a request's longest time.
_MOST_PROBES = 8


class OutageRecovery:
    """What one process does from when its circuit opens until it closes.

    Args:
        circuit: whether it is open, and when the next probe may be sent.
        pace: begins with a few afterwards.
        reader: where probes come from.
        executor: processes them.
        settlement: releases what is interrupted.
        held: what is held.
    """

    def __init__(
        self,
        circuit: CircuitBreaker,
        pace: Pace,
        reader: Reader,
        executor: Executor,
        settlement: Settlement,
        held: Held,
    ) -> None:
        self._circuit = circuit
        self._pace = pace
        self._reader = reader
        self._executor = executor
        self._settlement = settlement
        self._held = held
        self._is_canary_due = False
        self._ahead = self._passed = 0

    async def run(self, shutdown: Shutdown) -> None:
        """Send no requests but probes until one is answered, or a stop is requested."""
        self._ahead = self._passed = 0
        await self._interrupt(shutdown)
        probes: list[asyncio.Task[None]] = []
        while self._circuit.is_open and not shutdown.requested.is_set():
            await self._pause(shutdown)
            if self._circuit.closed.is_set() or shutdown.requested.is_set():
                break
            probes = self._undecided(probes)
            if len(probes) == _MOST_PROBES:
                await self._cancel([probes.pop(0)], shutdown)
            probes += await self._probe(shutdown)
        # One was answered: those that hang would only keep their slots from working.
        await self._cancel(self._undecided(probes), shutdown)
        self._settlement.log_released()
        self._pace.restart()

    async def _pause(self, shutdown: Shutdown) -> None:
        pauses = self._circuit.pauses
        pause = pauses.next()
        # The last probe may be answered meanwhile, and told to wait.
        while pause > 0 and not (self._circuit.closed.is_set() or shutdown.requested.is_set()):
            await first_of([], shutdown.requested, self._circuit.closed, within=pause)
            pause = pauses.left()

    async def _interrupt(self, shutdown: Shutdown) -> None:
        """Release what is in flight; an API that only asks to wait is left the requests that it processes."""
        started = [task for _, task in self._held.undecided()]
        await self._cancel([] if self._circuit.is_throttled else started, shutdown)

    async def _cancel(self, tasks: list[asyncio.Task[None]], shutdown: Shutdown) -> None:
        """Cancel tasks, and release what they have not decided; a request to stop ends the wait for Redis."""
        for task in tasks:
            task.cancel()
        await all_ended(tasks)
        interrupted = [delivery for delivery, task in self._held.undecided() if task.done()]
        if not interrupted:
            return
        releasing = asyncio.create_task(self._settlement.release(interrupted))
        try:
            await first_of([releasing], shutdown.requested)
        finally:
            releasing.cancel()
            await all_ended([releasing])

    async def _probe(self, shutdown: Shutdown) -> list[asyncio.Task[None]]:
        """Request one order: in turn one that the API has delivered before, and one from the queue.

        Those in the queue may be what fails; the known ones may have been deleted.
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
        """How many new entries the next probe passes over."""
        self._ahead = min(2 * self._ahead + 1, _MOST_PASSED - self._passed)
        self._passed += self._ahead
        return self._ahead

    def _undecided(self, probes: list[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        """Those that go on, and may be cancelled: they are not about to settle an outcome."""
        decided = self._held.decided_tasks()
        return [probe for probe in probes if not probe.done() and probe not in decided]
