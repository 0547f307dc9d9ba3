"""Shows the partitions of queues, changes their number and repairs their lanes while workers and producers run.

One process at a time changes the partitions of a queue. A change continues wherever it ended when it is started again. Until then,
workers read the queues of both numbers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import Lane, QueueState
from ingest.domain.errors import QueueUnavailable
from ingest.domain.partitions import Layout
from ingest.operations.backends import Backends
from ingest.operations.leased import while_renewed
from ingest.queue.operate.failed.dead_letter_pages import Call
from ingest.queue.operate.queue_states import read_states
from ingest.queue.operate.repeated_calls import RepeatedCalls
from ingest.queue.partitions.change_hold import ChangeHold, HeldChange
from ingest.queue.partitions.draining import ChangedMeanwhile
from ingest.queue.partitions.lane_repair import LaneRepair
from ingest.queue.partitions.layout_record import LayoutRecord, read_layouts
from ingest.queue.partitions.repartitioning import Progress, Repartitioning
from ingest.queue.redis.connection import control_client

# Between two looks at the former partitions.
_INTERVAL = 0.5
# Seconds to end the hold of a change. If this fails, it expires.
_LAST_WAIT = 5.0


class Phase(StrEnum):
    """The part of a queue in the layout.

    Attributes:
        CURRENT: producers enqueue there.
        FORMER: only workers read it, until it is drained.
        OUTSIDE: it contains orders, and no worker reads it.
    """

    CURRENT = "current"
    FORMER = "former"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition.

    Attributes:
        queue: the name of its queue.
    """

    queue: str
    phase: Phase
    state: QueueState


@dataclass(frozen=True, slots=True)
class SourcePartitions:
    """The partitions of one source.

    Attributes:
        source: the name of the source.
        configured: the number of partitions in its settings.
    """

    source: str
    layout: Layout
    configured: int
    partitions: Sequence[PartitionState]


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a change.

    Attributes:
        before: as recorded when it was started.
        after: as recorded now.
        moved: dead letters that were moved.
    """

    before: Layout
    after: Layout
    moved: int


@dataclass(frozen=True, slots=True)
class RepairedLane:
    """A lane whose entries have new IDs.

    Attributes:
        queue: the name of its partition's queue.
        entries: that were moved.
    """

    queue: str
    lane: Lane
    entries: int


async def read_partitions(sources: Sequence[Backends]) -> list[SourcePartitions]:
    """Read the partitions of each source.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    async with control_client(sources[0].redis_url) as client:
        layouts = await read_layouts(client, {each.stream: each.partitions for each in sources})
        return [
            SourcePartitions(each.source, layout, each.partitions, await _states(client, layout, each.group))
            for each in sources
            for layout in (layouts[each.stream],)
        ]


async def _states(client: Redis, layout: Layout, group: str) -> list[PartitionState]:
    queues = [*layout.queues, *layout.others]
    states = []
    for queue, state in zip(queues, await read_states(client, queues, group), strict=True):
        if isinstance(state, QueueUnavailable):
            raise state
        phase = _phase(layout, queue)
        if phase is not Phase.OUTSIDE or state.depth or state.pending or state.retries or state.dead:
            states.append(PartitionState(queue, phase, state))
    return states


def _phase(layout: Layout, queue: str) -> Phase:
    if queue in layout.current:
        return Phase.CURRENT
    return Phase.FORMER if queue in layout.queues else Phase.OUTSIDE


async def change_partitions(
    backends: Backends,
    partitions: int,
    *,
    holder: str,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_held: Callable[[HeldChange], None] = lambda _: None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Changed:
    """Change the number of partitions, and return when the former ones are drained. Waits while Redis is unavailable.

    While another process changes the partitions of the queue, it waits. If that process dies, it continues.

    Args:
        backends: the queue.
        partitions: the new number, or the recorded one to continue a change.
        holder: the name of this process for others that wait.
        on_progress: called with the state after each step.
        on_held: called with the change of the process that is waited for, again and again.
        on_wait: called with each reason for waiting.

    Raises:
        ChangedMeanwhile: another process has changed the number at the same time.
    """
    call = RepeatedCalls(on_wait).call
    async with control_client(backends.redis_url) as client:
        hold = ChangeHold(client, backends.stream, HeldChange(holder, partitions))

        def note(progress: Progress) -> None:
            hold.change = HeldChange(holder, partitions, progress.entries + progress.retries)
            on_progress(progress)

        async with held(hold, on_held, call):
            return await while_renewed(_change(client, backends, partitions, note, call), hold.renew())


@asynccontextmanager
async def held(hold: ChangeHold, on_held: Callable[[HeldChange], None], call: Call) -> AsyncIterator[None]:
    """Hold a change. While another process holds it, wait, and call `on_held` with its change again and again."""
    try:
        while (other := await call(hold.take)) is not None:
            on_held(other)
            await asyncio.sleep(_INTERVAL)
        yield
    finally:
        with suppress(QueueUnavailable, TimeoutError):
            async with asyncio.timeout(_LAST_WAIT):
                await hold.release()


async def _change(
    client: Redis, backends: Backends, partitions: int, on_progress: Callable[[Progress], None], call: Call
) -> Changed:
    record = LayoutRecord(client, backends.stream, backends.partitions)
    steps = Repartitioning(client, record, backends.group, backends.results_age)
    before = await call(record.read)
    await call(steps.begin, partitions)
    moved = 0
    while True:
        progress = await call(steps.drain)
        if progress.layout.partitions != partitions:
            raise ChangedMeanwhile(f"another process has changed the partitions to {progress.layout.partitions}")
        moved += progress.moved
        on_progress(progress)
        if progress.is_complete:
            return Changed(before, progress.layout, moved)
        await asyncio.sleep(_INTERVAL)


async def repair_lanes(
    backends: Backends,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> list[RepairedLane]:
    """Give the entries of lanes whose entry IDs are too far ahead new IDs. Waits while Redis is unavailable.

    Args:
        backends: the queue.
        on_progress: called with the number of entries that were moved so far, after each step.
        on_wait: called with each reason for waiting.
    """
    repaired, call = list[RepairedLane](), RepeatedCalls(on_wait).call
    async with control_client(backends.redis_url) as client:
        layout = (await call(read_layouts, client, {backends.stream: backends.partitions}))[backends.stream]
        for queue in layout.queues:
            repair = LaneRepair(client, queue, backends.group)
            for lane in Lane:
                entries, is_complete, is_renewed = 0, False, False
                while not is_complete:
                    step = await call(repair.step, lane)
                    entries, is_complete = entries + step.moved, step.is_complete
                    is_renewed = is_renewed or step.is_renewed
                    on_progress(sum(each.entries for each in repaired) + entries)
                if entries or is_renewed:
                    repaired.append(RepairedLane(queue, lane, entries))
    return repaired
