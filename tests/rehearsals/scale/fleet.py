"""Simulated worker processes, with only the reads, claims, heartbeats and acks of the service's own parts."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ingest.domain.deliveries.delivery import Delivery
from ingest.flow.clock import SharedClock
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.group.maintenance import GroupMaintenance
from ingest.flow.held import Held
from ingest.flow.isolation import Isolation
from ingest.flow.read.reader import BLOCK, Reader
from ingest.flow.read.reclaim import Reclaimer
from ingest.flow.settle.moves import Moves
from ingest.flow.shutdown import Shutdown
from ingest.queue.consume.consumer import QueueConsumer
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics

GROUP = "ingest"
LEASE = 30.0


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the fleet."""

    name: str
    consumer: QueueConsumer
    reader: Reader
    heartbeats: Heartbeats
    maintenance: GroupMaintenance


class Fleet:
    """Any number of processes in one event loop.

    Attributes:
        members: the processes.
        taken: number of orders that each process has taken, by its name.
    """

    def __init__(self, url: str, queue: str, partitions: int, block: float, lifetime: float) -> None:
        self._url = url
        self._queue = queue
        self._partitions = partitions
        self._block = block
        self._lifetime = lifetime
        self._metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
        self._stop = Shutdown(LEASE)
        self.members: list[Member] = []
        self.taken: Counter[str] = Counter()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        queue: str,
        processes: int,
        *,
        partitions: int = 1,
        block: float = BLOCK,
        lifetime: float = 600.0,
        prefix: str = "process",
    ) -> AsyncIterator["Fleet"]:
        """A fleet that is connected, and does nothing yet."""
        fleet = cls(url, queue, partitions, block, lifetime)
        async with AsyncExitStack() as stack:
            for number in range(processes):
                await fleet._join(stack, f"{prefix}-{number}")
            yield fleet

    async def _join(self, stack: AsyncExitStack, name: str) -> None:
        connections = await stack.enter_async_context(QueueConnections.open(self._url))
        opening = QueueConsumer.open(
            connections,
            LayoutRecord(connections.control, self._queue, self._partitions),
            GROUP,
            name,
            self._block,
            self._lifetime,
        )
        consumer = await stack.enter_async_context(opening)
        in_flight = Held()
        heartbeats = Heartbeats(consumer.liveness, in_flight, LEASE, self._lifetime, SharedClock())
        reclaimer = Reclaimer(consumer.reading, in_flight, self._metrics.redeliveries)
        release = Moves(consumer.settling, in_flight, self._metrics).release_unprocessed
        reader = Reader(
            consumer.reading,
            reclaimer,
            release,
            heartbeats,
            isolate_above=3,
            isolation=Isolation().of_source(in_flight),
            block=self._block,
        )
        maintenance = GroupMaintenance(consumer.maintenance, heartbeats, LEASE)
        self.members.append(Member(name, consumer, reader, heartbeats, maintenance))

    async def send_heartbeats(self) -> None:
        """Let each process send a heartbeat and read the number of consumers."""
        for member in self.members * 2:
            await member.heartbeats.send()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """During the block, each process reads five orders and acks them before it reads more."""

        async def work(member: Member) -> None:
            while True:
                taken = (await member.reader.read(5, self._stop)).deliveries
                if taken:
                    await asyncio.sleep(0.05)
                    await self._finish(member, taken)

        async with _all(work(member) for member in self.members):
            yield

    @asynccontextmanager
    async def working(self, seconds: float) -> AsyncIterator[None]:
        """During the block, each process makes all calls of a service process. An order takes `seconds`."""
        finishing: set[asyncio.Task[None]] = set()

        async def finish(member: Member, taken: list[Delivery]) -> None:
            await asyncio.sleep(seconds)
            await self._finish(member, taken)

        async def work(member: Member) -> None:
            while True:
                if taken := (await member.reader.read(100, self._stop)).deliveries:
                    task = asyncio.create_task(finish(member, taken))
                    finishing.add(task)
                    task.add_done_callback(finishing.discard)

        living = [
            part
            for member in self.members
            for part in (member.heartbeats.run(), member.maintenance.run(), member.consumer.run())
        ]
        async with _all([*living, *(work(member) for member in self.members)]):
            yield

    async def _finish(self, member: Member, taken: list[Delivery]) -> None:
        self.taken[member.name] += len(taken)
        await member.consumer.settling.ack([delivery.entry for delivery in taken])


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
