"""Changes the number of a queue's partitions while producers and workers use it.

The steps, each of which may be repeated, and be continued by another process:

1. Open the queues of the new partitions to producers. Record the new number, with the previous one among the former numbers. Workers and
   producers read the record every few seconds. Workers read both kinds of queues from then on.
2. Close the queues that are former partitions only. A producer that still uses one is rejected, and reads the record again.
3. Wait until workers have processed the entries and retries of the former partitions, and move dead letters and the marks of erased orders to
   the order's new partition.
4. Drop the former number from the record. Workers stop reading its queues.

An order may be enqueued in its new partition while an earlier entry waits in the former one. Versions decide between them, like between any
two entries of an order.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.partitions import Layout, partition_queue
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.queue_states import read_states
from ingest.queue.partitions.draining import ChangedMeanwhile, Draining
from ingest.queue.partitions.groups import groups_of
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.partitions.partition_gates import PartitionGates
from ingest.queue.redis.connection import QueueRefused, translated


@dataclass(frozen=True, slots=True)
class Progress:
    """The state after a step.

    Attributes:
        layout: as recorded.
        entries: entries that wait or are in flight in former partitions.
        retries: of former partitions.
        moved: dead letters that this step has moved.
        waiting_for: the queues that are not drained yet.
    """

    layout: Layout
    entries: int = 0
    retries: int = 0
    moved: int = 0
    waiting_for: Collection[str] = field(default_factory=tuple)

    @property
    def is_complete(self) -> bool:
        """Whether the queue has its partitions only."""
        return not self.layout.former


class Repartitioning:
    """Changes the partitions of one queue. Its methods raise `QueueUnavailable` when Redis cannot be used right now.

    Args:
        client: the commands are sent by it.
        record: of the queue.
        group: a consumer group of the queue. Others are found.
        results_age: seconds for which results in former partitions are kept.
    """

    def __init__(self, client: Redis, record: LayoutRecord, group: str, results_age: float) -> None:
        self._client = client
        self._record = record
        self._group = group
        self._results_age = results_age
        self._gates = PartitionGates(client)
        self._draining = Draining(client, group)

    async def begin(self, partitions: int) -> Layout:
        """Record the number of partitions, unless it is recorded, and send producers there. Return the layout.

        A change that continues is recorded again, because the new generation rejects moves of a process that made it before.

        Raises:
            ChangedMeanwhile: another process has recorded another number.
        """
        layout = await self._record.read()
        former = await self._former_after(layout, partitions)
        if former or partitions != layout.partitions:
            new = Layout(layout.queue, partitions, former, layout.generation + 1)
            for queue in new.current:
                await self._keep_results(queue)
            await self._gates.open_for(new)
            layout = await self._write(new)
        if layout.generation:
            await self._gates.settle(layout)
            for queue in layout.queues:
                await self._draining.copy_erased(layout, queue)
        return layout

    async def drain(self) -> Progress:
        """Move everything that can be moved out of the former partitions, and drop the drained ones.

        Raises:
            ChangedMeanwhile: another process has recorded another layout.
        """
        layout = await self._record.read()
        entries = retries = moved = 0
        waiting: dict[str, None] = {}
        drained, is_open = [], False
        for number in layout.former:
            is_drained = True
            for queue in _queues(layout, number):
                rest = await self._draining.rest(layout, queue)
                # Those of a current partition are moved once no further ones come.
                if rest.is_empty or queue not in layout.current:
                    await self._draining.copy_erased(layout, queue)
                    moves = await self._draining.move_dead_letters(layout, queue)
                    moved, is_drained = moved + moves.added, is_drained and moves.is_complete
                if rest.is_empty:
                    # An operator may have replayed a dead letter in the meantime. Now there is none left.
                    rest = await self._draining.rest(layout, queue)
                if not rest.is_empty:
                    is_drained, is_open = False, is_open or rest.is_open
                    if queue not in waiting:
                        entries, retries = entries + rest.entries, retries + rest.retries
                    waiting[queue] = None
            if is_drained:
                drained.append(number)
        if is_open:
            # A failover has lost it.
            await self._gates.settle(layout)
        if drained:
            layout = await self._drop(layout, drained)
        return Progress(layout, entries, retries, moved, [*waiting])

    async def _former_after(self, layout: Layout, partitions: int) -> tuple[int, ...]:
        """Return the former numbers with this number of partitions."""
        numbers = dict.fromkeys((layout.partitions, *layout.former, *await self._left_behind(layout)))
        return tuple(number for number in numbers if number != partitions)

    async def _left_behind(self, layout: Layout) -> list[int]:
        """Return the numbers of partitions whose queues contain orders that a program has written there too late."""
        states = await read_states(self._client, layout.others, self._group)
        found = [
            queue
            for queue, state in zip(layout.others, states, strict=True)
            if isinstance(state, QueueState) and (state.depth or state.pending or state.retries or state.dead)
        ]
        # With a single partition, the queue would have its plain name.
        numbers = (max(2, int(queue.rpartition(":")[2]) + 1) for queue in found if queue != layout.queue)
        last = max(numbers, default=0)
        return [*([1] if layout.queue in found else []), *([last] if last else [])]

    async def _drop(self, layout: Layout, drained: Collection[int]) -> Layout:
        left = tuple(number for number in layout.former if number not in drained)
        new = Layout(layout.queue, layout.partitions, left, layout.generation + 1)
        gone = set(layout.queues) - set(new.queues)
        written = await self._write(new)
        # After the record: if the process dies in between, results are kept for longer than necessary.
        for queue in gone:
            await self._let_results_expire(queue)
        for queue in gone if new.former else layout.queues:
            await self._draining.forget_moves(queue)
        return written

    async def _write(self, layout: Layout) -> Layout:
        written = await self._record.write(layout)
        if written != layout:
            raise ChangedMeanwhile(
                f"another process has changed the partitions of {layout.queue} to {written.partitions} at the same time"
            )
        return await self._record.read()

    async def _let_results_expire(self, queue: str) -> None:
        for group in await groups_of(self._client, queue, self._group):
            # A user without the right to it leaves the results in Redis.
            with suppress(QueueRefused), translated():
                await self._client.pexpire(Keys.of(queue, group).results, int(self._results_age * 1000))

    async def _keep_results(self, queue: str) -> None:
        for group in await groups_of(self._client, queue, self._group):
            with suppress(QueueRefused), translated():
                await self._client.persist(Keys.of(queue, group).results)


def _queues(layout: Layout, number: int) -> list[str]:
    return [partition_queue(layout.queue, each, number) for each in range(number)]
