"""Enqueues the orders of one partition, each lane by its own group commit."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Durability
from ingest.queue.layout.keys import Keys, LaneKeys
from ingest.queue.produce.drain_rate import Backlog
from ingest.queue.produce.durability import ProvenRun
from ingest.queue.produce.enqueue_script import Destination, EnqueueScript
from ingest.queue.produce.group_commit import GroupCommit
from ingest.queue.produce.overlapping_commit import OverlappingCommit
from ingest.queue.produce.producer_errors import QueueClosed
from ingest.queue.produce.proofs import Proofs
from ingest.queue.produce.submission import Submission, most_in_a_step

# Batches of a lane that concurrently wait for a disk or a replica, in all partitions. Each uses a connection.
OVERLAPPING = 8

_Submit = Callable[[Submission], Coroutine[Any, Any, int]]


class ProducerOptions(msgspec.Struct, frozen=True):
    """The options of a producer, see `Producer`."""

    backlog_limit: int
    durability: Durability
    replicas: int
    idempotency_lifetime: float
    on_wait: Callable[[str], None]


class PartitionProducer:
    """Enqueues into the queue of a partition.

    Args:
        client: A connection to Redis.
        queue: Name of the partition's queue.
        partitions: The number of partitions, which share the backlog limit.
        options: The options of the producer.

    Attributes:
        most: Orders that are accepted in one step.
    """

    def __init__(self, client: Redis, queue: str, partitions: int, options: ProducerOptions) -> None:
        self._client = client
        self._keys = Keys.of(queue)
        self._options = options
        self._partitions = partitions
        self._limit = -(-options.backlog_limit // partitions)
        # Part of the error of a full backlog.
        self._of = f" of {queue}" if partitions > 1 else ""
        self._overlapping = max(1, OVERLAPPING // partitions)
        self.most = most_in_a_step(self._limit)
        self._proofs = Proofs(client, f"{self._keys.records}confirmed", options.durability, options.replicas)
        name = secrets.token_hex(12)
        express, main = self._keys.lanes
        self._main = self._lane(main, name)
        self._express = self._lane(express, f"{name}:express")

    def _lane(self, lane: LaneKeys, name: str) -> GroupCommit:
        to = Destination(self._keys, lane, self._limit, self._options.idempotency_lifetime, self._partitions)
        backlog = Backlog(self._client, lane.stream)
        commit: dict[str, Any] = {
            "most": self.most,
            "limit": self._limit,
            "on_wait": self._options.on_wait,
            "of": self._of,
        }
        if self._proofs.is_trivial:
            script = EnqueueScript(self._client, to, name, backlog)
            return GroupCommit(script.add, **commit)
        run = ProvenRun(self._client, self._proofs.find)
        scripts = [EnqueueScript(self._client, to, f"{name}:{slot}", backlog, run) for slot in range(self._overlapping)]
        return OverlappingCommit([script.add for script in scripts], **commit)

    async def check_durability(self) -> None:
        """See `Producer.check_durability`."""
        await self._proofs.check()

    async def submit(self, parts: Sequence[Submission], *, express: bool, waits: bool) -> int:
        """Submit all parts, in their order, and return how many orders needed no entry.

        Args:
            parts: The parts of one call.
            express: The lane.
            waits: Whether to wait through outages and a full backlog.

        Raises:
            QueueClosed: If the queue belongs to a former partition.
        """
        lane = self._express if express else self._main
        if len(parts) == 1:
            [part] = parts
            try:
                return await (lane.submit(part) if waits else lane.try_submit(part))
            except QueueClosed:
                raise QueueClosed(part.given) from None
        closed: set[int] = set()

        async def submit(part: Submission) -> int:
            try:
                return await (lane.submit(part) if waits else lane.try_submit(part))
            except QueueClosed:
                closed.add(id(part))
                return 0

        duplicates = await self._each(submit, parts)
        if closed:
            raise QueueClosed([order for part in parts if id(part) in closed for order in part.given], duplicates)
        return duplicates

    async def _each(self, submit: _Submit, parts: Sequence[Submission]) -> int:
        if self._proofs.is_trivial:
            return sum([await submit(part) for part in parts])
        # One after the other, each would wait for the disk.
        begun: deque[asyncio.Task[int]] = deque()
        duplicates = 0
        try:
            for part in parts:
                if len(begun) == self._overlapping:
                    duplicates += await begun.popleft()
                begun.append(asyncio.create_task(submit(part)))
            while begun:
                duplicates += await begun.popleft()
        finally:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
        return duplicates

    async def close(self) -> None:
        """Stop. Calls that still wait raise `QueueUnavailable`."""
        await self._main.close()
        await self._express.close()
