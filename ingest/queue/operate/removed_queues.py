"""Finds the queues of sources that are no longer configured. They stay in Redis until their orders are processed or deleted."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.source_name import UNNAMED, InvalidSourceName, parse_source_name, queue_of
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.monitor import Monitor
from ingest.queue.redis.connection import QueueRefused, control_client, translated

# Keys of one step, which take Redis about a millisecond, and the most steps.
_STEP, _MOST_STEPS = 1_000, 2_000


@dataclass(frozen=True, slots=True)
class RemovedQueue:
    """The queue of a source that is not configured.

    Attributes:
        source: its name, empty for the unnamed source.
        queue: the name of the queue.
    """

    source: str
    queue: str
    state: QueueState

    @property
    def is_empty(self) -> bool:
        """Whether it contains no orders. Its keys may remain."""
        state = self.state
        return not (state.depth or state.pending or state.retries or state.dead) and state.depth is not None


async def removed_queues(
    url: str, stream: str, configured: Collection[str], stored: Collection[str], group: str = DEFAULT_GROUP
) -> Sequence[RemovedQueue]:
    """Find the queues with orders of sources that are not configured.

    They are searched for in the first two million keys of the server. A user that may not send SCAN, because it would show
    the keys of other programs, only finds queues of sources with stored orders.

    Args:
        url: of Redis.
        stream: the name of the queue without a source.
        configured: the names of the configured sources.
        stored: the names of the sources with stored orders.
        group: the consumer group.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    async with control_client(url) as client:
        queued: set[str] = set()
        with _unless_denied():
            queued = await _sources_of(client, stream)
        sources = {UNNAMED, *stored, *queued} - {*configured}
        queues = []
        for source in sorted(sources):
            queue = queue_of(stream, source)
            # The rights of the user may not include the keys of the unnamed queue.
            with _unless_denied():
                queues.append(RemovedQueue(source, queue, await Monitor(client, queue, group).state()))
    return [queue for queue in queues if not queue.is_empty]


@contextmanager
def _unless_denied() -> Iterator[None]:
    """Skip the block if the user may not send its command."""
    try:
        yield
    except QueueRefused as error:
        if not isinstance(error.__cause__, NoPermissionError):
            raise


async def _sources_of(client: Redis, stream: str) -> set[str]:
    """The sources with a queue in Redis. Each queue has a main lane from its first use."""
    # The name of a stream contains no characters with a meaning in patterns.
    pattern = Keys.of(queue_of(stream, "*")).stream
    before, after = pattern.split("*")
    found: set[str] = set()
    cursor = 0
    for _ in range(_MOST_STEPS):
        with translated():
            reply: Any = await client.scan(cursor, match=pattern, count=_STEP)
            cursor, keys = reply
        for key in keys:
            try:
                found.add(parse_source_name(key.decode().removeprefix(before).removesuffix(after)))
            except (InvalidSourceName, UnicodeDecodeError):
                continue
        if not cursor:
            break
    return found
