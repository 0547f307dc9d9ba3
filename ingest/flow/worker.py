"""Runs one worker process: reads as many deliveries as it has slots, processes each, and stops cleanly.

The process may die at any await. Its deliveries are then pending under its name in Redis, and are delivered again to its successor or
to another worker. An entry is acked only after its commit.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.errors import Unavailable
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.deliver.executor import Executor
from ingest.flow.deliver.scheduler import Scheduler
from ingest.flow.followed_controls import SourceControls, follow_while
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.group.maintenance import GroupMaintenance
from ingest.flow.held import Held
from ingest.flow.outage_recovery import OutageRecovery
from ingest.flow.pace.pace import Pace
from ingest.flow.ports import FleetPart, Liveness
from ingest.flow.read.reader import Reader
from ingest.flow.settle.settlement import Settlement
from ingest.flow.shutdown import Shutdown
from ingest.flow.waiting import all_ended, ended_before, first_of
from ingest.telemetry.activity import record_activity
from ingest.telemetry.logs import get_logger

_log = get_logger("worker")

# Seconds after the grace period for the last commit, and for releasing.
_LAST_WAIT = 2.0


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a worker, which `ingest.services.worker_parts` composes."""

    liveness: Liveness
    held: Held
    scheduler: Scheduler
    reader: Reader
    executor: Executor
    settlement: Settlement
    circuit: CircuitBreaker
    outage: OutageRecovery
    heartbeats: Heartbeats
    maintenance: GroupMaintenance
    controls: SourceControls
    pace: Pace
    fleet: Sequence[FleetPart] = ()


class Worker:
    """Processes deliveries until a stop is requested.

    Attributes:
        tuned: set when an operator has changed the limits, which a worker has when it is opened.
    """

    def __init__(self, parts: Parts) -> None:
        self.tuned = parts.controls.tuned
        self._parts = parts
        self._held = parts.held
        self._tasks = parts.scheduler.tasks
        self._settlement = parts.settlement

    async def run(self, shutdown: Shutdown) -> None:
        """Work until stopped. On return every delivery is settled or released.

        When cancelled, it drops all deliveries immediately, and Redis keeps the unsettled ones.
        """
        if await self._has_announced_itself(shutdown):
            await self._run(shutdown)
        # Redis may have accepted the first heartbeat even if no reply came.
        await self._release_rest()

    async def _run(self, shutdown: Shutdown) -> None:
        parts = self._parts
        try:
            async with asyncio.TaskGroup() as tasks:
                storing = tasks.create_task(parts.settlement.run())
                background = [
                    tasks.create_task(parts.heartbeats.run()),
                    tasks.create_task(parts.maintenance.run()),
                    tasks.create_task(self._wake_on_stop(shutdown)),
                    tasks.create_task(self._wake_on_outage()),
                    tasks.create_task(follow_while(parts.controls, self._pause, self._resume)),
                    *(tasks.create_task(part.run()) for part in parts.fleet),
                ]
                await self._work(shutdown)
                await self._finish(shutdown, storing)
                for task in background:
                    task.cancel()
        finally:
            await self._cancel_deliveries()

    async def _work(self, shutdown: Shutdown) -> None:
        backlog = False
        while not shutdown.requested.is_set():
            if self._parts.circuit.is_open:
                await self._parts.outage.run(shutdown)
                backlog = False
            elif free := await self._parts.scheduler.wait(shutdown, backlog=backlog):
                backlog = await self._take(free, shutdown)
            elif self._parts.controls.is_paused:
                # A pause is no reason to restart the process.
                record_activity()

    async def _take(self, free: int, shutdown: Shutdown) -> bool:
        """Read up to `free` deliveries and start them, and return whether there may be more."""
        batch = await self._parts.reader.read(free, shutdown)
        record_activity()
        self._settlement.expect_more(backlog=batch.is_full)
        if batch.is_isolated:
            await self._isolate(batch.deliveries[0], shutdown)
        else:
            self._parts.executor.start(batch.deliveries, shutdown)
            if not batch.is_full:
                # Send their requests before the next read.
                await asyncio.sleep(0)
        return batch.is_full

    async def _isolate(self, delivery: Delivery, shutdown: Shutdown) -> None:
        """Read no other delivery while it is processed."""
        processing = self._parts.executor.start_isolated(delivery)
        await first_of([processing], shutdown.requested, self._parts.circuit.opened)

    async def _has_announced_itself(self, shutdown: Shutdown) -> bool:
        """Send the first heartbeat before the first read, and return False if a stop was requested before Redis replied."""
        return await ended_before(self._parts.heartbeats.send(), shutdown.requested)

    async def _wake_on_outage(self) -> None:
        circuit = self._parts.circuit
        while True:
            await circuit.opened.wait()
            self._parts.scheduler.wake()
            await circuit.closed.wait()

    def _pause(self, reason: str) -> None:
        """Release the deliveries that have not begun. Requests in flight continue."""
        _log.info("source_paused", reason=reason, in_flight=len(self._held))
        self._parts.pace.turn_away(reason)
        self._parts.scheduler.begin_all()

    def _resume(self) -> None:
        self._settlement.moves.log_released()
        _log.info("source_resumed")
        self._parts.scheduler.wake()

    async def _wake_on_stop(self, shutdown: Shutdown) -> None:
        await shutdown.requested.wait()
        self._parts.scheduler.wake()
        for part in self._parts.fleet:
            part.close()

    # -- the end --------------------------------------------------------------------------------------------

    async def _finish(self, shutdown: Shutdown, storing: asyncio.Task[None]) -> None:
        """Let deliveries in flight end within the grace period, then cancel the rest."""
        overdue = asyncio.create_task(shutdown.overdue.wait())
        ended = asyncio.create_task(all_ended(list(self._tasks)))
        try:
            await asyncio.wait([overdue, ended], return_when=asyncio.FIRST_COMPLETED)
            await self._cancel_deliveries()
            self._settlement.finish()
            # Give a batch in progress a moment. Once it is committed and acked, it need not be processed again.
            await asyncio.wait([overdue, storing], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([storing], timeout=_LAST_WAIT)
        finally:
            overdue.cancel()
            ended.cancel()
            storing.cancel()

    async def _cancel_deliveries(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await all_ended(tasks)

    async def _release_rest(self) -> None:
        """Release the remaining deliveries and leave the group. If that fails, other workers will reclaim them."""
        self._settlement.moves.log_released()
        held = len(self._held)
        try:
            async with asyncio.timeout(_LAST_WAIT):
                released = await self._settlement.moves.release_rest()
                orphans = await self._parts.liveness.leave()
        except (TimeoutError, Unavailable):
            released, orphans = 0, held
            log = _log.error if held else _log.warning
        else:
            log = _log.info
        log("stopped", stored=self._settlement.stored, released=released, orphans=orphans)
