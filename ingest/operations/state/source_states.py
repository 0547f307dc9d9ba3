"""Reads the state of each source at one moment: its queue, its workers and its quota."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import StoreUnavailable, UserError
from ingest.domain.operating.polling import PollState
from ingest.operations.backends import Backends
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.partition_monitor import ConsumerState
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.quota_pauses import read_pauses
from ingest.queue.redis.connection import control_client
from ingest.store.connections.pool import Pool
from ingest.store.polls import read_polls

# Sources that are read concurrently.
_CONCURRENT = 10


class Activity(StrEnum):
    """Whether the orders of a source are processed."""

    RUNNING = "running"
    THROTTLED = "throttled"
    CIRCUIT_OPEN = "circuit open"
    NO_WORKER = "no worker"
    PAUSED = "paused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ListedSource:
    """A source whose state is to be read.

    Attributes:
        quota: the name of its quota.
        has_list: whether its list of orders may be polled.
    """

    name: str
    backends: Backends
    quota: str
    has_list: bool = False


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of one source.

    Attributes:
        source: the name of the source.
        activity: whether its orders are processed.
        queue: its queue.
        workers: live worker processes.
        throttled_for: seconds until requests are sent again, because the external API has asked to wait.
        errors: the errors that opened circuits.
        poll: the polling of its list of orders. None if the list was never read.
    """

    source: str
    activity: Activity
    queue: QueueState
    workers: int
    throttled_for: float
    errors: Sequence[str]
    poll: PollState | None = None


async def read_states(sources: Sequence[ListedSource]) -> list[SourceState]:
    """Read the state of each source. The state of polling is omitted while PostgreSQL cannot be used.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    limit = asyncio.Semaphore(_CONCURRENT)

    async def read(client: Redis, source: ListedSource) -> SourceState:
        async with limit:
            layout = layout_reader(client, source.backends.stream)
            monitor = Monitor(client, layout, source.backends.group)
            queue, consumers = await monitor.state(), await monitor.consumers()
        return _state(source, queue, consumers, pauses[source.quota], polls.get(source.name))

    polls = await _polls(sources)
    async with control_client(sources[0].backends.redis_url) as client:
        pauses = await read_pauses(client, (source.quota for source in sources))
        return await asyncio.gather(*(read(client, source) for source in sources))


async def _polls(sources: Sequence[ListedSource]) -> dict[str, PollState]:
    listed = [source.name for source in sources if source.has_list]
    if not listed:
        return {}
    try:
        async with Pool.open(sources[0].backends.postgres_dsn, size=1) as pool:
            return await read_polls(pool, listed)
    except (StoreUnavailable, UserError):
        return {}


def _state(
    source: ListedSource,
    queue: QueueState,
    consumers: Sequence[ConsumerState],
    paused: float,
    poll: PollState | None,
) -> SourceState:
    alive = [consumer for consumer in consumers if consumer.state == "alive"]
    errors = sorted({consumer.circuit.error for consumer in alive if consumer.circuit is not None})
    if not alive:
        activity = Activity.NO_WORKER
    elif errors:
        activity = Activity.CIRCUIT_OPEN
    else:
        activity = Activity.THROTTLED if paused else Activity.RUNNING
    return SourceState(source.name, activity, queue, len(alive), paused, errors, poll)
