"""The parts that the sources of one worker process share, and the share of each source.

If the process dies here, no delivery has been read through these connections, or it is pending under the name of its consumer.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Self

import msgspec

from ingest.domain.operating.controls import LogLevel
from ingest.domain.source_name import deployment_of
from ingest.flow.availability import until_ready
from ingest.flow.clock import SharedClock
from ingest.flow.followed_controls import FollowedControls
from ingest.flow.isolation import Isolation
from ingest.flow.shares import Share, Shares
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.operate.controls import ControlRecord
from ingest.services.jobs.job_search import OF_WORKERS, JobSearch
from ingest.store.connections.connection import BATCH_TIMEOUT
from ingest.store.connections.pool import MOST_CONNECTIONS, Pool
from ingest.telemetry.logs import change_level

if TYPE_CHECKING:
    from ingest.settings import Settings


class Limits(msgspec.Struct, frozen=True):
    """The shares of one source.

    Attributes:
        slots: of the orders in flight.
        rows: of the documents between fetch and commit.
        size: of the bytes of these documents.
        isolation: of entries, from the other sources.
    """

    slots: Share
    rows: Share
    size: Share
    isolation: Isolation


class SharedLimits(msgspec.Struct, frozen=True):
    """The limits of one process, which its sources share. Attributes as in `Limits`."""

    slots: Shares
    rows: Shares
    size: Shares
    isolation: Isolation

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """The limits that the settings of a process describe."""
        return cls(Shares(settings.concurrency), Shares(settings.batch_rows), Shares(settings.batch_bytes), Isolation())

    @contextmanager
    def of_source(self) -> Iterator[Limits]:
        """Give a source its share of each limit while the block runs."""
        shares = (self.slots, self.rows, self.size)
        slots, rows, size = each = [all_shares.add() for all_shares in shares]
        try:
            yield Limits(slots, rows, size, self.isolation)
        finally:
            for all_shares, share in zip(shares, each, strict=True):
                all_shares.remove(share)


class SharedParts(msgspec.Struct, frozen=True):
    """The parts that the sources of one process share.

    Attributes:
        name: of the consumers of this process.
        queue: connections to Redis.
        store: connections to PostgreSQL.
        clock: the queue server's time.
        controls: set by operators.
        jobs: finds the waiting ones.
        limits: of the process.
    """

    name: str
    queue: QueueConnections
    store: Pool
    clock: SharedClock
    controls: FollowedControls
    jobs: JobSearch
    limits: SharedLimits


@asynccontextmanager
async def shared_parts(
    settings: "Settings", name: str, *, clock: SharedClock | None = None, batch_timeout: float = BATCH_TIMEOUT
) -> AsyncIterator[SharedParts]:
    """Open the parts that the sources of a process share. Waits for unavailable servers.

    Args:
        settings: of the process.
        name: of its consumers.
        clock: set to the queue server's time.
        batch_timeout: seconds for a batch of orders to be stored.

    Raises:
        UserError: a server denies access.
    """
    async with AsyncExitStack() as stack:

        async def open_connections() -> Pool:
            dsn = settings.postgres_dsn.get_secret_value()
            opening = Pool.open_for_batches(dsn, size=_connections(settings), timeout=batch_timeout)
            return await stack.enter_async_context(opening)

        store = await until_ready("postgres", open_connections)
        queue = await stack.enter_async_context(QueueConnections.open(settings.redis_url.get_secret_value()))
        clock = clock or SharedClock()
        controls = await _follow_controls(settings, queue, name, clock)
        jobs = JobSearch(store.of_source(), OF_WORKERS)
        yield SharedParts(name, queue, store, clock, controls, jobs, SharedLimits.of(settings))


def _connections(settings: "Settings") -> int:
    """The connections to PostgreSQL. Batches of the only source do not wait for its history or its list."""
    if settings.sources is not None:
        return MOST_CONNECTIONS
    return 1 + (settings.history > 0) + (settings.order_list is not None)


async def _follow_controls(
    settings: "Settings", connections: QueueConnections, name: str, clock: SharedClock
) -> FollowedControls:
    """The controls of the process `name`, read once. Its user may lack the right to them, and nothing is controlled then."""
    deployment = deployment_of(settings.stream, settings.source)
    record = ControlRecord(connections.control, deployment, settings.group)

    def set_log_level(level: LogLevel | None) -> None:
        change_level(level or settings.log_level)

    controls = FollowedControls(record.keep, name, clock.utc, set_log_level)
    await controls.check()
    return controls
