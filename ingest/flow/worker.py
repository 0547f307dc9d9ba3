"""One worker process's work: takes slots, takes in deliveries, sends each on its way, and stops cleanly.

Where the process may die: at any await. What it holds is then pending under its name in Redis, and comes back by its
successor or by another worker's reaper; nothing is acked before it is committed.
"""

import asyncio

from ingest.domain.delivery import Delivery
from ingest.domain.errors import Unavailable
from ingest.flow.handler import Handler
from ingest.flow.intake import Intake
from ingest.flow.lease import Leases
from ingest.flow.patience import until_available
from ingest.flow.reaper import return_due, tidy_group
from ingest.flow.seams import Queue
from ingest.flow.settlement import Settlement
from ingest.flow.shutdown import Shutdown
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_log = get_logger("worker")

# How long a read waits for new entries: short, because a stop waits for it rather than cancels it.
BLOCK = 1.0
# With a backlog, reading waits this long for a few free slots together: a read of one costs as much as one of fifty.
_GATHER = 0.002
_GATHER_SHARE = 64
# After the grace period: for the last commit, and for giving back.
_LAST_WORDS = 2.0


class Worker:
    """Processes deliveries until it is asked to stop.

    Args:
        queue: the consumer.
        intake: where deliveries come from.
        handler: decides.
        settlement: applies.
        leases: what is held.
        concurrency: slots; a delivery has one from before it is read until it is fetched and handed to its batch.
        idle: seconds of silence after which the group claims; entries given back are given that idleness.
        metrics: in-flight orders.
    """

    def __init__(
        self,
        queue: Queue,
        intake: Intake,
        handler: Handler,
        settlement: Settlement,
        leases: Leases,
        *,
        concurrency: int,
        idle: float,
        metrics: WorkerMetrics,
    ) -> None:
        self._queue = queue
        self._intake = intake
        self._handler = handler
        self._settlement = settlement
        self._leases = leases
        self._idle = idle
        self._metrics = metrics
        self._concurrency = self._free = concurrency
        self._enough = max(1, concurrency // _GATHER_SHARE)
        self._wanted = 1
        self._freed = asyncio.Event()

    async def run(self, shutdown: Shutdown) -> None:
        """Work until stopped; on return everything is settled or given back.

        Cancelled, it drops everything at once, and Redis keeps what was not settled.
        """
        self._metrics.concurrency_limit.set(self._concurrency)
        async with asyncio.TaskGroup() as parts:
            storing = parts.create_task(self._settlement.run())
            background = [
                parts.create_task(self._leases.run()),
                parts.create_task(return_due(self._queue)),
                parts.create_task(tidy_group(self._queue)),
                parts.create_task(self._wake_on_stop(shutdown)),
            ]
            deliveries: set[asyncio.Task[None]] = set()
            await self._take_in(shutdown, parts, deliveries)
            await self._finish(shutdown, storing, deliveries)
            for task in background:
                task.cancel()
        await self._give_back()

    async def _take_in(self, shutdown: Shutdown, parts: asyncio.TaskGroup, deliveries: set[asyncio.Task[None]]) -> None:
        backlog = away = False
        while not shutdown.requested.is_set():
            free = await self._free_slots(backlog=backlog)
            if shutdown.requested.is_set() or not free:
                continue
            try:
                taken = await self._intake.next(free, BLOCK)
            except Unavailable as error:
                if not away:
                    _log.warning("reading_paused", server="redis", error=str(error))
                away = True
                await shutdown.pause(BLOCK / 2)
                continue
            if away:
                _log.info("reading_resumed")
            away = False
            backlog = len(taken) == free
            self._settlement.expect_more(backlog=backlog)
            self._free -= len(taken)
            self._metrics.in_flight.set(self._concurrency - self._free)
            for delivery in taken:
                task = parts.create_task(self._deliver(delivery))
                self._leases.take(delivery, task)
                deliveries.add(task)
                task.add_done_callback(deliveries.discard)

    async def _free_slots(self, *, backlog: bool) -> int:
        """Wait for a free slot; with a backlog a little longer, for a few."""
        self._wanted = self._enough if backlog else 1
        if self._free < self._wanted:
            self._freed.clear()
            timer = asyncio.get_running_loop().call_later(_GATHER, self._want_one)
            await self._freed.wait()
            timer.cancel()
        return self._free

    def _want_one(self) -> None:
        self._wanted = 1
        if self._free:
            self._freed.set()

    async def _wake_on_stop(self, shutdown: Shutdown) -> None:
        await shutdown.requested.wait()
        self._freed.set()

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            outcome = await self._handler.handle(delivery)
            await self._settlement.settle(delivery, outcome)
        except Exception:  # noqa: BLE001  the one place for it, see below
            # A bug met by one order must not stop the others. The entry stays pending and comes again, until Redis
            # has counted too many deliveries.
            _log.exception("delivery_failed", order_id=delivery.order_id, entry_id=delivery.entry_id)
            self._leases.drop(delivery.entry_id)
        finally:
            self._leases.work_done(delivery.entry_id)
            self._free += 1
            self._metrics.in_flight.set(self._concurrency - self._free)
            if self._free >= self._wanted:
                self._freed.set()

    async def _finish(
        self, shutdown: Shutdown, storing: asyncio.Task[None], deliveries: set[asyncio.Task[None]]
    ) -> None:
        """Let what is in hand end within the grace period; then let go of it."""
        overdue = asyncio.create_task(shutdown.overdue.wait())
        ended = asyncio.create_task(_all_ended(set(deliveries)))
        try:
            await asyncio.wait([overdue, ended], return_when=asyncio.FIRST_COMPLETED)
            for task in deliveries:
                task.cancel()
            await ended
            self._settlement.finish()
            # A batch under way is worth a moment even now: committed and acked, it need not be done again.
            await asyncio.wait([overdue, storing], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([storing], timeout=_LAST_WORDS)
        finally:
            overdue.cancel()
            ended.cancel()
            storing.cancel()

    async def _give_back(self) -> None:
        """Release what is still held, and leave the group; failing that, others will claim it."""
        held = self._leases.held()
        try:
            async with asyncio.timeout(_LAST_WORDS):
                released = await until_available("redis", self._queue.release, held, self._idle) if held else 0
                await self._queue.leave()
        except (TimeoutError, Unavailable):
            _log.error("left_pending", entries=len(held))
            return
        _log.info("stopped", given_back=released, left_pending=0)


async def _all_ended(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
