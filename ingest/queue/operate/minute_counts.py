"""Keeps counts of each minute of a queue in Redis for a day, for the history in the console.

There is one hash for each hour with a count, which expires by itself, so that the history of a queue needs at most 26 hashes of 300 numbers.
Workers add the orders that they have finished. `ingest api` notes the queue at the end of each minute, where the first process wins. If a process
dies here, its last counts are missing in the history, and nothing else. After a lost reply, counts may be added twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import QueueState
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import replies, translating

_HOUR = 60
_LIFETIME_MS = 25 * 3_600_000


class Count(StrEnum):
    """A number of a minute.

    The first three are added up. `ENDED` contains all orders that have left the queue, with the stored ones. The last two are from its end:
    the unfinished orders, and the age of the oldest one in seconds.
    """

    STORED = "s"
    FAILED = "f"
    ENDED = "e"
    IN_QUEUE = "q"
    OLDEST = "o"


Counts = Mapping[Count, int]
_KNOWN = frozenset(Count)


@translating
async def add_counts(client: Redis, keys: Keys, minute: int, counts: Counts) -> None:
    """Add to the counts of a minute, in minutes since 1970."""
    key = _key(keys, minute // _HOUR)
    async with client.pipeline(transaction=False) as pipe:
        for name, count in counts.items():
            pipe.hincrby(key, f"{minute % _HOUR}{name}", count)
        pipe.pexpire(key, _LIFETIME_MS)
        await replies(pipe)


@translating
async def note_queues(client: Redis, minute: int, queues: Sequence[tuple[Keys, QueueState]]) -> None:
    """Note these queues at the end of a minute, unless another process has done so."""
    async with client.pipeline(transaction=False) as pipe:
        for keys, state in queues:
            key = _key(keys, minute // _HOUR)
            for name, count in of_queue(state).items():
                pipe.hsetnx(key, f"{minute % _HOUR}{name}", str(count))
            pipe.pexpire(key, _LIFETIME_MS)
        await replies(pipe)


def of_queue(state: QueueState) -> Counts:
    """Return the counts of a queue at the end of a minute, as far as they are known."""
    if state.in_queue is None:
        return {}
    return {Count.IN_QUEUE: state.in_queue, Count.OLDEST: round(state.oldest_age or 0)}


@translating
async def read_counts(client: Redis, queues: Sequence[Keys], first: int, last: int) -> list[Mapping[int, Counts]]:
    """Return the counts of each queue in these minutes, in one round trip. Those of a server that cannot be used are missing.

    Raises:
        QueueUnavailable: no server can be used right now.
    """
    hours = range(first // _HOUR, last // _HOUR + 1)
    async with client.pipeline(transaction=False) as pipe:
        for keys in queues:
            for hour in hours:
                pipe.hgetall(_key(keys, hour))
        found = await pipe.execute(raise_on_error=False)
    errors = [each for each in found if isinstance(each, Exception)]
    if errors and len(errors) == len(found):
        raise errors[0]
    each = iter({} if isinstance(reply, Exception) else reply for reply in found)
    return [_minutes(zip(hours, each, strict=False)) for _ in queues]


def _minutes(hours: Iterable[tuple[int, Mapping[bytes, bytes]]]) -> Mapping[int, Counts]:
    found: dict[int, dict[Count, int]] = {}
    for hour, fields in hours:
        for name, count in fields.items():
            text = name.decode()
            if text[-1:] in _KNOWN:
                found.setdefault(hour * _HOUR + int(text[:-1]), {})[Count(text[-1])] = int(count)
    return found


def _key(keys: Keys, hour: int) -> str:
    return f"{keys.minutes}{hour}"
