"""Moves dead letters, the marks of erased orders and controls from another Redis, after the deployment was configured with a new one.

Controls come first, so that a paused source gets no requests. A dead letter is added before it is deleted in the other Redis, and each is
added once, see `Draining`. If the process dies here, the next call continues.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable, UserError
from ingest.operations.backends import Backends
from ingest.operations.leased import while_renewed
from ingest.operations.partitions import held
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.operate.failed.dead_letter_pages import Call
from ingest.queue.operate.queue_states import read_states
from ingest.queue.operate.repeated_calls import RepeatedCalls
from ingest.queue.partitions.change_hold import ChangeHold, HeldChange
from ingest.queue.partitions.draining import Draining
from ingest.queue.partitions.layout_record import LayoutRecord, read_layouts
from ingest.queue.redis.connection import control_client

# Between the pass that adds dead letters and the pass that deletes them in the other Redis.
_INTERVAL = 0.5


@dataclass(frozen=True, slots=True)
class Transferred:
    """The result for one source.

    Attributes:
        source: the name of the source.
        moved: dead letters that were moved.
        remaining: orders that wait, are in flight or are retried in the other Redis.
    """

    source: str
    moved: int
    remaining: int


async def transfer_controls(backends: Backends, url: str, on_wait: Callable[[str], None]) -> list[str]:
    """Copy the pauses and changed limits of all sources that are not set here. Return the sources that it has paused."""
    call = RepeatedCalls(on_wait).call
    async with control_client(url) as former, control_client(backends.redis_url) as client:
        before = await call(ControlRecord(former, backends.deployment, backends.group).read)
        record = ControlRecord(client, backends.deployment, backends.group)
        known = await call(record.read)
        pauses = {source: pause for source, pause in before.pauses.items() if source not in known.pauses}
        tunings = {source: tuning for source, tuning in before.tunings.items() if source not in known.tunings}
        if pauses:
            await call(record.set_pauses, pauses)
        if tunings:
            await call(record.set_tunings, tunings)
        return sorted(pauses)


async def transfer(
    backends: Backends,
    url: str,
    *,
    holder: str,
    on_progress: Callable[[int], None] = lambda _: None,
    on_held: Callable[[HeldChange], None] = lambda _: None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Transferred:
    """Move the dead letters of a source, and the marks of its erased orders. Waits while either Redis is unavailable.

    Args:
        backends: the queue in its new Redis.
        url: of the other Redis.
        holder: the name of this process for others that wait.
        on_progress: called with the dead letters that were moved so far.
        on_held: called with the change of the process that is waited for, again and again.
        on_wait: called with each reason for waiting.

    Raises:
        UserError: both are the same Redis.
    """
    call = RepeatedCalls(on_wait).call
    async with control_client(url) as former, control_client(backends.redis_url) as client:
        hold = ChangeHold(client, backends.stream, HeldChange(holder, backends.partitions))
        async with held(hold, on_held, call):
            if await call(hold.is_held_in, former):
                raise UserError("the URL leads to the Redis that is configured: give the URL of the previous one")
            return await while_renewed(_transfer(former, client, backends, on_progress, call), hold.renew())


async def _transfer(
    former: Redis, client: Redis, backends: Backends, on_progress: Callable[[int], None], call: Call
) -> Transferred:
    layout = await call(LayoutRecord(client, backends.stream, backends.partitions).read)
    before = (await call(read_layouts, former, {backends.stream: 1}))[backends.stream]
    draining = Draining(former, backends.group, client)
    moved, queues = 0, (*before.queues, *before.others)
    for queue in queues:
        await call(draining.copy_erased, layout, queue)
        while not (moves := await call(draining.move_dead_letters, layout, queue)).is_complete:
            moved += moves.added
            on_progress(moved)
            await asyncio.sleep(_INTERVAL)
    if not layout.former:
        for queue in layout.current:
            await call(draining.forget_moves, queue)
    return Transferred(backends.source, moved, await call(_remaining, former, queues, backends.group))


async def _remaining(former: Redis, queues: Sequence[str], group: str) -> int:
    total = 0
    for state in await read_states(former, queues, group):
        if isinstance(state, QueueUnavailable):
            raise state
        total += (state.depth or 0) + state.pending + state.retries
    return total
