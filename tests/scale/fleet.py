"""Worker processes as Redis sees them: reads, claims, heartbeats and acks by the service's own parts, and nothing else."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ingest.flow.intake import Intake
from ingest.flow.lease import Leases
from ingest.flow.reaper import Reaper

from ingest.domain.delivery import Delivery
from ingest.flow.clock import SharedClock
from ingest.flow.maintenance import Maintenance
from ingest.queue.consumer import Consumer
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics

GROUP = "ingest"
LEASE = 30.0


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the fleet."""

    consumer: Consumer
    intake: Intake
    leases: Leases
    maintenance: Maintenance


class Fleet:
    """Any number of processes in one event loop.

    Attributes:
        members: the processes.
        taken: how many orders each has taken, by its name.
    """

    def __init__(self, url: str, queue: str, lifetime: float) -> None:
        self._url = url
        self._queue = queue
        self._lifetime = lifetime
        self._redeliveries = WorkerMetrics.on(worker_shared_metrics(1), 0).redeliveries
        self.members: list[Member] = []
        self.taken: Counter[str] = Counter()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, queue: str, processes: int, *, lifetime: float = 600.0, prefix: str = "process"
    ) -> AsyncIterator["Fleet"]:
        """A fleet that is connected, and does nothing yet."""
        fleet = cls(url, queue, lifetime)
        async with AsyncExitStack() as stack:
            for number in range(processes):
                await fleet._join(stack, f"{prefix}-{number}")
            yield fleet

    async def _join(self, stack: AsyncExitStack, name: str) -> None:
        consumer = await stack.enter_async_context(Consumer.open(self._url, self._queue, GROUP, name, 60.0))
        await consumer.ensure_group()
        leases = Leases(consumer, LEASE, self._lifetime, SharedClock())
        intake = Intake(consumer, leases, Reaper(consumer, leases, self._redeliveries), calm=3)
        self.members.append(Member(consumer, intake, leases, Maintenance(consumer, leases, LEASE)))

    async def beat(self) -> None:
        """Let each be heard, and learn how many there are."""
        for member in self.members * 2:
            await member.leases.beat()

    @asynccontextmanager
    async def reading(self, block: float) -> AsyncIterator[None]:
        """While the block runs, each takes in five orders at a time, and acks them before it takes in more."""

        async def work(member: Member) -> None:
            while True:
                taken = await member.intake.next(5, block)
                if taken:
                    await asyncio.sleep(0.05)
                    await self._finish(member, taken)

        async with _all(work(member) for member in self.members):
            yield

    @asynccontextmanager
    async def working(self, block: float, seconds: float) -> AsyncIterator[None]:
        """While the block runs, each does all that a process of the service does; an order takes so many `seconds`."""
        finishing: set[asyncio.Task[None]] = set()

        async def finish(member: Member, taken: list[Delivery]) -> None:
            await asyncio.sleep(seconds)
            await self._finish(member, taken)

        async def work(member: Member) -> None:
            while True:
                if taken := await member.intake.next(100, block):
                    task = asyncio.create_task(finish(member, taken))
                    finishing.add(task)
                    task.add_done_callback(finishing.discard)

        living = [part for member in self.members for part in (member.leases.run(), member.maintenance.run())]
        async with _all([*living, *(work(member) for member in self.members)]):
            yield

    async def _finish(self, member: Member, taken: list[Delivery]) -> None:
        self.taken[member.consumer.name] += len(taken)
        await member.consumer.ack([delivery.entry for delivery in taken])


@asynccontextmanager
async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run all of it while the block runs."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
