"""Finds queues with orders that no worker reads: of sources that are not configured any more, and partitions that are not recorded.

They stay in Redis until their orders are processed or deleted.
"""

import re
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.domain.errors import QueueUnavailable
from ingest.domain.source_name import UNNAMED, InvalidSourceName, parse_source_name, queue_of
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.queue_states import read_states
from ingest.queue.partitions.layout_record import read_layouts
from ingest.queue.redis.connection import QueueRefused, control_client, translated
from ingest.queue.redis.topology import topology_of

# Keys of one step, which take Redis about a millisecond, and the most steps on each server.
_STEP, _MOST_STEPS = 1_000, 2_000
# After the name of the queue without a source.
_REST = re.compile(r"(?:/(?P<source>[^:]*))?(?::(?P<partition>[0-9]{1,3}))?")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RemovedQueue:
    """The queue of a source that is not configured, or a partition that is not recorded.

    Attributes:
        source: the name of the source, empty for the unnamed one.
        queue: the name of the whole queue, or of the partition's queue.
        state: over all partitions of the queue.
        is_partition: whether it is a partition of a configured source.
    """

    source: str
    queue: str
    state: QueueState
    is_partition: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it contains no orders. Its keys may remain."""
        state = self.state
        return not (state.depth or state.pending or state.retries or state.dead) and state.depth is not None


async def removed_queues(
    url: str, stream: str, configured: Collection[str], stored: Collection[str], group: str = DEFAULT_GROUP
) -> Sequence[RemovedQueue]:
    """Find the queues with orders of sources that are not configured, and partitions with orders that are not recorded.

    They are searched for in the first two million keys of each server. A user that may not send SCAN, because it would show
    the keys of other programs, only finds queues of sources with stored orders, and partitions of configured sources.

    Args:
        url: of Redis.
        stream: the name of the queue without a source.
        configured: the names of the configured sources.
        stored: the names of the sources with stored orders.
        group: the consumer group.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    found = await _unless_denied(_queues_of_servers(url, stream)) or {}
    async with control_client(url) as client:
        removed = [
            await _unless_denied(_removed(client, stream, source, found.get(source, ()), group))
            for source in sorted({UNNAMED, *stored, *found} - {*configured})
        ]
        for source in sorted(configured):
            left = _left_partitions(client, stream, source, found.get(source, ()), group)
            removed += await _unless_denied(left) or []
    return [queue for queue in removed if queue is not None and not queue.is_empty]


async def _unless_denied(reading: Awaitable[_T]) -> _T | None:
    """Return None if the user may not send the commands. Its rights may not include the keys of the unnamed queue."""
    try:
        return await reading
    except QueueRefused as error:
        if not isinstance(error.__cause__, NoPermissionError):
            raise
        return None


async def _removed(client: Redis, stream: str, source: str, found: Collection[str], group: str) -> RemovedQueue:
    whole = queue_of(stream, source)
    layout = (await read_layouts(client, {whole: 1}))[whole]
    states = await _states(client, [*{*layout.queues, *found}], group)
    return RemovedQueue(source, whole, total_of(states.values()))


async def _left_partitions(
    client: Redis, stream: str, source: str, found: Collection[str], group: str
) -> list[RemovedQueue]:
    whole = queue_of(stream, source)
    layout = (await read_layouts(client, {whole: 1}))[whole]
    # Without a record, there have never been several partitions.
    possible = {*found, *(layout.others if layout.generation else ())}
    states = await _states(client, sorted(possible - {*layout.queues}), group)
    return [RemovedQueue(source, queue, state, is_partition=True) for queue, state in states.items()]


async def _states(client: Redis, queues: Sequence[str], group: str) -> Mapping[str, QueueState]:
    states = {}
    for queue, state in zip(queues, await read_states(client, queues, group), strict=True):
        if isinstance(state, QueueUnavailable):
            raise state
        states[queue] = state
    return states


async def _queues_of_servers(url: str, stream: str) -> dict[str, set[str]]:
    """The queues in Redis by source. Each queue has a main lane from its first use."""
    found: dict[str, set[str]] = {}
    with translated():
        servers = await topology_of(url).primaries()
    for server in servers:
        async with control_client(server) as client:
            for source, queue in await _queues_of(client, stream):
                found.setdefault(source, set()).add(queue)
    return found


async def _queues_of(client: Redis, stream: str) -> set[tuple[str, str]]:
    """The queues on one server, each with its source."""
    # The name of a stream contains no characters with a meaning in patterns.
    pattern = Keys.of(f"{stream}*").stream
    before, after = pattern.split("*")
    found: set[tuple[str, str]] = set()
    cursor = 0
    for _ in range(_MOST_STEPS):
        with translated():
            reply: Any = await client.scan(cursor, match=pattern, count=_STEP)
            cursor, keys = reply
        for key in keys:
            try:
                rest = key.decode().removeprefix(before).removesuffix(after)
                parts = _REST.fullmatch(rest)
                if parts is not None:
                    source = UNNAMED if parts["source"] is None else parse_source_name(parts["source"])
                    found.add((source, stream + rest))
            except (InvalidSourceName, UnicodeDecodeError):
                continue
        if not cursor:
            break
    return found
