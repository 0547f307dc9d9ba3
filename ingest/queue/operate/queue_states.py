"""Reads the states of several queues in one round trip, and changes nothing. The queues of all sources are in one Redis."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import Lane, LaneState, QueueState
from ingest.domain.errors import QueueUnavailable
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.combined_calls import ClientRunner
from ingest.queue.redis.connection import QueueRefused, translated, translating
from ingest.queue.redis.script_call import ScriptCall
from ingest.queue.redis.scripts import load


@translating
async def read_states(client: Redis, queues: Sequence[str], group: str) -> list[QueueState | QueueUnavailable]:
    """Return the state of each queue, or the error for a queue whose keys Redis rejects, or whose server cannot be used.

    Raises:
        QueueUnavailable: no server can be used right now.
    """
    states = [_state_of(reply) for reply in await _replies(client, queues, group)]
    failures = [each for each in states if isinstance(each, QueueUnavailable) and not isinstance(each, QueueRefused)]
    if failures and len(failures) == len(states):
        raise failures[0]
    return states


async def _replies(client: Redis, queues: Sequence[str], group: str) -> list[Any]:
    script, calls = load(client, "state"), []
    for queue in queues:
        keys = Keys.of(queue, group)
        names = [keys.retry, keys.retry_announced, keys.dead, keys.stream, keys.express, keys.clock]
        calls.append(ScriptCall(script, names, [group]))
    return await ClientRunner(client).run_all(calls)


def _state_of(reply: Any) -> QueueState | QueueUnavailable:
    try:
        with translated():
            if isinstance(reply, Exception):
                raise reply
    except QueueUnavailable as error:
        return error
    now, retries, due, announced, dead, main, express = reply
    lanes = {Lane.MAIN: _Lane(*main), Lane.EXPRESS: _Lane(*express)}
    return _queue_state(now, lanes, _Retrying(retries, due, announced), dead)


class _Lane(NamedTuple):
    """One lane in the script's reply. Its oldest order was `announced` at that time (ms). Its last ID is `ahead` of the clock (ms)."""

    depth: int | None
    pending: int
    announced: int | None
    consumers: int
    ahead: bytes
    is_exhausted: int


class _Retrying(NamedTuple):
    """The retry set in the script's reply. Its oldest order was `announced` at that time (ms)."""

    entries: int
    due: int
    announced: int | None


def _queue_state(now: int, lanes: dict[Lane, _Lane], retrying: _Retrying, dead: int) -> QueueState:
    """The sums over the lanes and the retry set. Times are in ms."""

    def age(announced: int | None) -> float | None:
        return None if announced is None else (now - announced) / 1000

    parts = lanes.values()
    depths = [lane.depth for lane in parts if lane.depth is not None]
    announced = [at for at in (retrying.announced, *(lane.announced for lane in parts)) if at is not None]
    return QueueState(
        depth=sum(depths) if len(depths) == len(lanes) else None,
        pending=sum(lane.pending for lane in parts),
        oldest_age=age(min(announced, default=None)),
        # A consumer reads both lanes under one name.
        consumers=max(lane.consumers for lane in parts),
        retries=retrying.entries,
        retries_due=retrying.due,
        dead=dead,
        lanes={
            name: LaneState(
                lane.depth, lane.pending, age(lane.announced), int(lane.ahead) / 1000, bool(lane.is_exhausted)
            )
            for name, lane in lanes.items()
        },
    )
