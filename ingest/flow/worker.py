"""One worker process's work: takes slots, takes in deliveries, sends each on its way, and stops cleanly.

Where the process may die: at any await. What it holds is then pending under its name in Redis, and comes back by its
successor or by another worker's reaper; nothing is acked before it is committed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from ingest.domain.delivery import Delivery, Outcome
from ingest.domain.errors import Unavailable
from ingest.flow.circuit_breaker import ApiAway, CircuitBreaker
from ingest.flow.handler import Handler
from ingest.flow.intake import Intake
from ingest.flow.lease import Leases
from ingest.flow.limit import ConcurrencyLimit
from ingest.flow.maintenance import Maintenance
from ingest.flow.outage_report import CircuitReport
from ingest.flow.pacing import Pacing
from ingest.flow.patience import until_available, warn
from ingest.flow.ports import Queue
from ingest.flow.settlement import Settlement
from ingest.flow.shutdown import Shutdown
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Gauge

_log = get_logger("worker")

# How long a read waits for new entries: short, because a stop waits for it rather than cancels it.
BLOCK = 1.0
# With a backlog, reading waits this long for a few free slots together: a read of one costs as much as one of fifty.
_GATHER = 0.002
_GATHER_SHARE = 64
# Handing over so many entries takes Redis a millisecond; then it answers others.
_MOST_AT_ONCE = 500
# Probes that may hang at once: with the longest pause between them, as many as begin within a request's longest time.
_MOST_PROBES = 8
# After the grace period: for the last commit, and for giving back.
_LAST_WORDS = 2.0
_UNTIL_SETTLED = 0.01
# How long something in hand waits for its turn without looking whether the circuit has opened.
_UNTIL_DUE = 0.25


class Worker:
    """Processes deliveries until it is asked to stop.

    Args:
        queue: the consumer.
        intake: where deliveries come from.
        handler: decides.
        settlement: applies.
        leases: what is held.
        maintenance: what this process does for all, if it leads.
        circuit: whether the external API is to be left in peace.
        limit: slots; a delivery has one from before it is read until it is fetched and handed to its batch.
        pacing: the pauses that the external API asks for: nothing is read in them.
        in_flight: shows how many slots are taken.
        report: tells others that the circuit is open.
    """

    def __init__(  # noqa: PLR0913  each is one part of it
        self,
        queue: Queue,
        intake: Intake,
        handler: Handler,
        settlement: Settlement,
        leases: Leases,
        maintenance: Maintenance,
        circuit: CircuitBreaker,
        limit: ConcurrencyLimit,
        pacing: Pacing,
        *,
        in_flight: Gauge,
        report: CircuitReport,
    ) -> None:
        self._queue = queue
        self._intake = intake
        self._handler = handler
        self._settlement = settlement
        self._leases = leases
        self._maintenance = maintenance
        self._circuit = circuit
        self._limit = limit
        self._pacing = pacing
        self._in_flight = in_flight
        self._report = report
        self._deliveries: set[asyncio.Task[None]] = set()
        self._wanted = 1
        self._away = False
        self._withheld = False
        self._released = 0
        self._turn = False
        self._freed = asyncio.Event()
        circuit.on_open = self._freed.set
        circuit.on_change = report.note

    async def run(self, shutdown: Shutdown) -> None:
        """Work until stopped; on return everything is settled or given back.

        Cancelled, it drops everything at once, and Redis keeps what was not settled.
        """
        if not await self._has_announced_itself(shutdown):
            return
        try:
            async with asyncio.TaskGroup() as parts:
                storing = parts.create_task(self._settlement.run())
                background = [
                    parts.create_task(self._leases.run()),
                    parts.create_task(self._maintenance.run()),
                    parts.create_task(self._report.run()),
                    parts.create_task(self._wake_on_stop(shutdown)),
                ]
                await self._work(shutdown)
                await self._finish(shutdown, storing)
                for task in background:
                    task.cancel()
        finally:
            # Not in the group, which would cost each of them another callback.
            for delivery in self._deliveries:
                delivery.cancel()
            await _all_ended(list(self._deliveries))
        await self._give_back()

    async def _work(self, shutdown: Shutdown) -> None:
        while not shutdown.requested.is_set():
            if self._circuit.is_open:
                await self._wait_for_the_api(shutdown)
                self._limit.restart()
            elif await self._give_back_undecided():
                self._tell_released()
                await self._take_in(shutdown)
            else:
                await shutdown.pause(BLOCK / 2)

    async def _has_announced_itself(self, shutdown: Shutdown) -> bool:
        """Send the first heartbeat, before anything is read; False if a stop was asked for before Redis could take it."""
        beating = asyncio.create_task(self._leases.beat())
        try:
            await _first_of([beating], shutdown.requested)
            return beating.done() and beating.result() is None
        finally:
            beating.cancel()

    # -- taking in ------------------------------------------------------------------------------------------

    async def _take_in(self, shutdown: Shutdown) -> None:
        """Take slots and read until there is something else to do: a stop, an outage of the API, something to give back."""
        backlog = False
        while not self._must_turn(shutdown):
            free = min(await self._free_slots(backlog=backlog), _MOST_AT_ONCE)
            if free <= 0 or self._must_turn(shutdown):
                continue
            if self._pacing.is_on and (pause := self._pacing.wait()) > 0:
                await self._pause(pause)
                continue
            taken = await self._taken(shutdown, self._intake.next(free, BLOCK))
            backlog = len(taken) == free
            self._settlement.expect_more(backlog=backlog)
            if taken and self._intake.is_suspect(taken[0]):
                await self._run_alone(shutdown, taken[0])
                continue
            decide = partial(self._when_due, shutdown) if self._pacing.is_on else self._handler.handle
            for delivery in taken:
                self._start(delivery, decide)

    def _must_turn(self, shutdown: Shutdown) -> bool:
        return shutdown.requested.is_set() or self._circuit.is_open or self._withheld

    async def _taken(self, shutdown: Shutdown, reading: Awaitable[list[Delivery]]) -> list[Delivery]:
        """What a read has brought; nothing, after a pause, while Redis is away."""
        try:
            taken = await reading
        except Unavailable as error:
            if not self._away:
                warn(_log, "reading_paused", error, server="redis")
            self._away = True
            await shutdown.pause(BLOCK / 2)
            return []
        if self._away:
            _log.info("reading_resumed")
        self._away = False
        return taken

    async def _free_slots(self, *, backlog: bool) -> int:
        """Wait for a free slot; with a backlog a little longer, for a few."""
        self._wanted = max(1, self._limit.value // _GATHER_SHARE) if backlog else 1
        if self._free() < self._wanted:
            self._freed.clear()
            timer = asyncio.get_running_loop().call_later(_GATHER, self._want_one)
            await self._freed.wait()
            timer.cancel()
        return self._free()

    async def _pause(self, seconds: float) -> None:
        """Wait so long; a stop or an outage ends it early, and so may a delivery that ends."""
        self._freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._freed.wait()

    def _free(self) -> int:
        return self._limit.value - len(self._deliveries)

    def _want_one(self) -> None:
        self._wanted = 1
        if self._free() > 0:
            self._freed.set()

    async def _wake_on_stop(self, shutdown: Shutdown) -> None:
        await shutdown.requested.wait()
        self._freed.set()

    # -- one delivery ---------------------------------------------------------------------------------------

    def _start(self, delivery: Delivery, decide: Callable[[Delivery], Awaitable[Outcome]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._deliver(delivery, decide))
        self._leases.take(delivery, task)
        self._deliveries.add(task)
        self._in_flight.set(len(self._deliveries))
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._deliveries.discard(task)
        self._in_flight.set(len(self._deliveries))
        if self._free() >= self._wanted:
            self._freed.set()

    async def _deliver(self, delivery: Delivery, decide: Callable[[Delivery], Awaitable[Outcome]]) -> None:
        try:
            outcome = await decide(delivery)
            self._leases.decided(delivery.entry)
            await self._settlement.settle(delivery, outcome)
        except ApiAway:
            self._withheld = True  # it stays undecided, and is given back with all others
        except Exception:  # noqa: BLE001  the one place for it, see below
            # A bug met by one order must not stop the others. The entry stays pending and comes again, until Redis
            # has counted too many deliveries.
            _log.exception("delivery_failed", order_id=delivery.order_id, entry_id=delivery.entry.id)
            self._leases.drop(delivery.entry)

    async def _run_alone(self, shutdown: Shutdown, delivery: Delivery) -> None:
        """Run an entry that may be what kills its workers while nothing else is in hand that would go down with it."""
        _log.warning("suspect_runs_alone", entry_id=delivery.entry.id, deliveries=delivery.count)
        await _first_of([self._start(delivery, self._when_alone)], shutdown.requested)

    async def _when_due(self, shutdown: Shutdown, delivery: Delivery) -> Outcome:
        """Handle it when the next request may begin: the API may have asked for a pause while it was being read."""
        if delivery.document is None:
            while (pause := self._pacing.wait()) > 0:
                if self._circuit.is_open or shutdown.requested.is_set():
                    raise ApiAway("the external API asks to wait")
                await shutdown.pause(min(pause, _UNTIL_DUE))
            self._pacing.started()
        return await self._handler.handle(delivery)

    async def _when_alone(self, delivery: Delivery) -> Outcome:
        while len(self._leases) > 1:
            if self._circuit.is_open or self._withheld:
                raise ApiAway("the others in hand have to be given back first")
            self._settlement.put_refused_off()
            await asyncio.sleep(_UNTIL_SETTLED)
        return await self._handler.handle(delivery)

    # -- while the API is away ------------------------------------------------------------------------------

    async def _wait_for_the_api(self, shutdown: Shutdown) -> None:
        """Leave the external API in peace, but for single orders as probes, until it answers one."""
        under_way = list(self._leases.undecided().values())
        if not self._circuit.is_throttled:
            for task in under_way:
                task.cancel()
            await _all_ended(under_way)
        probes: list[asyncio.Task[None]] = []
        while self._circuit.is_open and not shutdown.requested.is_set():
            await self._give_back_undecided()
            await _first_of([], shutdown.requested, self._circuit.closed, within=self._circuit.pause())
            probes = self._still_cancellable(probes)
            if self._circuit.closed.is_set() or shutdown.requested.is_set():
                break
            if len(probes) == _MOST_PROBES:
                probes.pop(0).cancel()
            probes += await self._probe(shutdown)
        # One was answered: those that hang would only keep their slots from working.
        for probe in probes:
            probe.cancel()
        await _all_ended(probes)

    async def _probe(self, shutdown: Shutdown) -> list[asyncio.Task[None]]:
        """Ask the API for one order: one that it has given before, or one from the queue, in turn.

        Those in the queue may be what fails; the one that was given may have gone bad.
        """
        self._turn = not self._turn
        if self._turn and self._circuit.has_an_order_to_ask_for:
            return [asyncio.create_task(self._circuit.probe())]
        taken = await self._taken(shutdown, self._intake.one())
        return [self._start(delivery, self._handler.probe) for delivery in taken]

    def _still_cancellable(self, probes: list[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        """Those that go on, and are not about to settle an outcome."""
        decided = self._deliveries.difference(self._leases.undecided().values())
        return [probe for probe in probes if not probe.done() and probe not in decided]

    async def _give_back_undecided(self) -> bool:
        """Release what ended without an outcome, uncounted; False if Redis is away and that has to be done later."""
        entries = [entry for entry, task in self._leases.undecided().items() if task.done()]
        if entries:
            try:
                released = await self._queue.release(self._leases.deliveries(entries))
            except Unavailable:
                return False
            for entry in entries:
                self._leases.drop(entry)
            self._released += released
        self._withheld = False
        return True

    def _tell_released(self) -> None:
        """One line for all that an outage has made us give back, when it is over."""
        if self._released:
            _log.info("given_back", entries=self._released)
            self._released = 0

    # -- the end --------------------------------------------------------------------------------------------

    async def _finish(self, shutdown: Shutdown, storing: asyncio.Task[None]) -> None:
        """Let what is in hand end within the grace period; then let go of it."""
        overdue = asyncio.create_task(shutdown.overdue.wait())
        ended = asyncio.create_task(_all_ended(list(self._deliveries)))
        try:
            await asyncio.wait([overdue, ended], return_when=asyncio.FIRST_COMPLETED)
            for task in self._deliveries:
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
        """Release what is still held, and leave the group; failing that, others will take it over."""
        self._tell_released()
        held = self._leases.deliveries(self._leases.held())
        try:
            async with asyncio.timeout(_LAST_WORDS):
                released = await until_available("redis", self._queue.release, held) if held else 0
                orphans = await self._queue.leave()
        except (TimeoutError, Unavailable):
            _log.error("stopped", given_back=0, orphans=len(held))
            return
        _log.info("stopped", given_back=released, orphans=orphans)


async def _all_ended(tasks: list[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


async def _first_of(tasks: list[asyncio.Task[None]], *events: asyncio.Event, within: float | None = None) -> None:
    """Wait until a task has ended, an event has happened, or `within` seconds are over."""
    happening = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait([*tasks, *happening], timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in happening:
            waiting.cancel()
