"""Performs a story with real workers in virtual time, and returns each violation of a guarantee."""

import asyncio
import random as shared_random
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any

from fakes.leases import MemoryQuota
from fakes.virtual_time import VirtualTimeLoop, now
from fakes.workers import RunningWorker, Workplace

from ingest.domain.deliveries.entry_fields import EXPECTED_VERSION
from ingest.domain.fetch.quota import QuotaLimits
from ingest.flow.ticks import process_number
from ingest.services.worker_parts import SharedLimits
from ingest.settings import Settings
from ingest.upstream.quota.quota import FleetQuota
from simulation.network import Network, Stamped
from simulation.polling import Polling
from simulation.quota import WithinQuota, part_of
from simulation.shop import RESPONSES, Shop, Table, version_of
from simulation.story import DEAD, LAST, Event, Kind, Story

# The longest pause between two tries is five minutes, and an order is tried ten times.
_DRAINED_WITHIN = 7200.0
_STOPPED_WITHIN = 120.0
# While orders are left, the last one changes so often, at irregular times. With regular ones, processes can take turns such that one
# gets each change too early, and another one stores it. Without deliveries and rows, no failure is attributed to an order.
_CHANGES_EVERY = 20.0
# Of a poison message, after which another process starts.
_POISONED_FOR = 1.0
# An API that fails as a whole may send another of these responses for an order that has failed for a reason of its own.
_ALWAYS_POSSIBLE = {"not_found", "invalid_order", "rejected", "attempts_exhausted"}


class _Source(Workplace):
    """The queue, the table and the shop of one source."""

    def __init__(self, story: Story, name: str, random: Random, reach: Callable[[str, Any], Any]) -> None:
        super().__init__()
        self.ahead = 0.0
        self.group.clock = lambda: now() + self.ahead
        self._story = story
        self._reach = reach
        self.name = name
        self.announced: set[str] = set()
        self.store: Table = Table(name)
        self.upstream: Shop = Shop(story, name, random)
        self._limits = QuotaLimits(concurrency=story.in_progress).with_rate(story.rate)
        self.quota = MemoryQuota(self._limits, now)
        self.polling = Polling(story, self.upstream, self.store, self.group)
        self._parts = count()

    def reach(self, name: str, port: Any) -> Any:
        return self._reach(name, port)

    def quota_of(self, name: str) -> FleetQuota | None:
        if not (self._story.rate or self._story.in_progress):
            return None
        # A process does not continue the part of a predecessor with its name.
        return part_of(self._limits, self._reach(name, self.quota.member(f"{name}-{next(self._parts)}")))

    def fetching(self, upstream: Any, quota: FleetQuota | None, clock: Any) -> Any:
        upstream = Stamped(upstream, clock) if self._story.steps else upstream
        return upstream if quota is None else WithinQuota(upstream, quota)

    def parts_of(self, name: str, settings: Settings, pace: Any, clock: Any) -> list[Any]:
        reach = partial(self._reach, name)
        return [self.polling.poller(name, settings, reach, pace, clock)] if self._story.poll else []

    def announce(self, order_id: str, *, is_lost: bool = False) -> None:
        """Enqueue an order as a webhook does, unless it is lost."""
        fields = {}
        self.upstream.create(order_id)
        self.announced.add(order_id)
        if is_lost:
            return
        if self._story.shows_versions and order_id.partition("-")[0] not in {"missing", "broken", "failing"}:
            fields[EXPECTED_VERSION.decode()] = self.upstream.expected_version(order_id)
        self.group.add(order_id, **fields)

    def change(self, order_id: str) -> None:
        """Give an order its next version."""
        (self.upstream.change if order_id in self.announced else self.upstream.create)(order_id)

    def violations(self) -> Iterator[str]:
        """A line for each order whose end contradicts a guarantee."""
        dead = self._dead_letters()
        for order_id in sorted(self.announced - self._at_fault()):
            row, reasons = self.store.rows.get(order_id), dead.pop(order_id, set())
            usual = DEAD.get(order_id.partition("-")[0])
            if usual is not None:
                if row is not None or not reasons or reasons - _ALWAYS_POSSIBLE - {usual}:
                    yield f"{order_id} has the dead letters {sorted(reasons)}"
            elif row is None:
                yield f"{order_id} is lost, with the dead letters {sorted(reasons)}"
            elif reasons:
                yield f"{order_id} is stored, and was blamed: {sorted(reasons)}"
            elif version_of(row) != self.upstream.version(order_id):
                yield f"{order_id} is stored in {row.status}, not version {self.upstream.version(order_id)}"
        for order_id in sorted({*self.store.rows, *dead} - self.announced):
            yield f"{order_id} was never announced"
        yield from self.store.violations
        yield from self.upstream.requests.violations[:1]

    def _dead_letters(self) -> dict[str, set[str]]:
        """The reasons of the dead letters of each order."""
        dead: dict[str, set[str]] = {}
        for letter in self.group.dead:
            dead.setdefault(str(letter.order_id), set()).add(letter.reason.value)
        return dead

    def _at_fault(self) -> set[str]:
        """Orders of an API that has flapped such that they are at fault, as far as a process can know."""
        if not self._story.flaps:
            return set()
        letters = [(str(letter.order_id), letter.at) for letter in self.group.dead]
        unproven = {order_id for order_id, at in letters if not self.upstream.has_evidence_against(order_id, at)}
        return {order_id for order_id, _ in letters if order_id.startswith("order")} - unproven

    def is_done(self, listed_at: float) -> bool:
        """Whether no order is left in the queue, nor in a list that is complete since `listed_at`."""
        return self.group.is_empty() and (not self._story.poll or self.polling.is_complete(listed_at))

    def left(self) -> str:
        """The number of orders in each state."""
        group = self.group
        return f"{len(group.undelivered)} new, {len(group.pending)} pending, {len(group.waiting)} to be retried"


@dataclass
class _Process:
    name: str
    workers: list[RunningWorker]
    resources: AsyncExitStack


class _World:
    def __init__(self, story: Story) -> None:
        self._story = story
        self.random = Random(story.seed)
        self._networks: dict[str, Network] = {}
        self._settings = Settings.model_construct(concurrency=story.concurrency)
        self._processes: dict[int, _Process] = {}
        self._ids = count(1)
        self._violations: list[str] = []
        self._sources = [
            _Source(story, f"source-{number}", self.random, self._reach) for number in range(story.sources)
        ]

    def _reach(self, name: str, port: Any) -> Any:
        if isinstance(port, Shop):
            port = port.as_seen_by(name, partial(self._poison, name))
        return self._networks[name].reach(port)

    async def play(self) -> list[str]:
        """Perform the story, let everything work again, and return the violations."""
        story, began = self._story, now()
        async with asyncio.TaskGroup() as self._tasks:
            for number in range(story.processes):
                await self._start(number)
            events = []
            for event in story.events:
                await asyncio.sleep(max(0.0, began + event.at - now()))
                events.append(self._tasks.create_task(self._happen(event, self._sources[event.source])))
            for happening in events:
                await happening
            await self._drain()
        for number in list(self._processes):
            await self._stop(self._processes.pop(number))
        ends = [f"{source.name}: {line}" for source in self._sources for line in source.violations()]
        return [*self._violations, *ends]

    async def _drain(self) -> None:
        """Wait until no order is left, while the last one changes now and then."""
        ends_at, changes_at = now() + _DRAINED_WITHIN, now()
        listed_at = now() + self._story.lag + self._story.late
        while now() == changes_at or not all(source.is_done(listed_at) for source in self._sources):
            if now() >= ends_at:
                left = "; ".join(source.left() for source in self._sources)
                self._violations.append(f"still queued two hours after the last event: {left}")
                return
            if now() >= changes_at:
                changes_at = now() + self.random.uniform(0, 2 * _CHANGES_EVERY)
                for source in self._sources:
                    source.change(LAST)
                    source.announce(LAST)
            await asyncio.sleep(0.5)

    # -- events ----------------------------------------------------------------------------------------------

    async def _happen(self, event: Event, source: _Source) -> None:
        match event.kind:
            case Kind.ANNOUNCE:
                source.announce(event.order, is_lost=event.is_lost)
            case Kind.CHANGE:
                source.change(event.order)
                await asyncio.sleep(event.seconds)
                source.announce(event.order, is_lost=event.is_lost)
            case Kind.KILL | Kind.STOP:
                if process := self._processes.pop(event.process, None):
                    await (self._kill if event.kind is Kind.KILL else self._stop)(process)
                    await asyncio.sleep(event.seconds)
                    await self._start(event.process, process.name if event.is_same_name else None)
            case Kind.FREEZE:
                if process := self._processes.get(event.process):
                    self._networks[process.name].frozen_until = now() + event.seconds
            case Kind.STEP:
                for each in self._sources:
                    each.ahead += event.seconds
            case _:
                self._set(event, source, is_failing=True)
                await asyncio.sleep(event.seconds)
                self._set(event, source, is_failing=False)

    def _set(self, event: Event, source: _Source, *, is_failing: bool) -> None:
        """Begin or end a failure."""
        match event.kind:
            case Kind.REDIS:
                for each in self._sources:
                    each.group.set_available(is_available=not is_failing)
                    each.quota.is_available = not is_failing
            case Kind.POSTGRES:
                for each in self._sources:
                    each.store.is_available = not is_failing
            case Kind.API:
                source.upstream.given = RESPONSES[event.response]() if is_failing else None
            case Kind.REFUSE:
                source.store.refuses_all = is_failing
            case Kind.SUPPRESS:
                source.store.suppresses = lambda _: is_failing
            case Kind.LOCK:
                change = source.store.locked_ids.add if is_failing else source.store.locked_ids.discard
                change(event.order)

    # -- processes -------------------------------------------------------------------------------------------

    async def _start(self, number: int, name: str | None = None) -> None:
        id_number = next(self._ids)
        name = name or f"process-{id_number}"
        process_number.set(id_number)
        self._networks[name] = Network(self.random, self._story.latency, self._story.loss)
        limits = SharedLimits.of(self._settings)
        async with AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(source.run_worker(name, self._settings, limits))
                for source in self._sources
            ]
            self._processes[number] = _Process(name, workers, stack.pop_all())

    def _poison(self, name: str) -> None:
        for number, process in self._processes.items():
            if process.name == name:
                self._networks[name].is_cut = True
                event = Event(now(), Kind.KILL, process=number, seconds=_POISONED_FOR)
                self._tasks.create_task(self._happen(event, self._sources[0]))

    async def _kill(self, process: _Process) -> None:
        self._networks[process.name].is_cut = True
        for source in self._sources:
            source.upstream.requests.end_of(process.name)
        await self._end(process)

    async def _stop(self, process: _Process) -> None:
        for worker in process.workers:
            worker.shutdown.request("story")
        _, running = await asyncio.wait([worker.task for worker in process.workers], timeout=_STOPPED_WITHIN)
        if running:
            self._violations.append(f"{process.name} did not stop within {_STOPPED_WITHIN:.0f} s")
        await self._end(process)

    async def _end(self, process: _Process) -> None:
        try:
            await process.resources.aclose()
        except Exception as error:  # noqa: BLE001  any error of a process is a violation
            self._violations.append(f"{process.name} failed: {error!r}")


@dataclass(frozen=True)
class End:
    """The end of a story.

    Attributes:
        violations: a line for each.
        course: differs if the story took another course.
    """

    violations: list[str]
    course: str


def played(story: Story) -> End:
    """Perform a story. The same story takes the same course each time."""
    shared_random.seed(story.seed)

    async def run() -> End:
        world = _World(story)
        found = await world.play()
        return End(found, f"{now():.6f}-{world.random.random():.6f}-{shared_random.random():.6f}")

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(run())
