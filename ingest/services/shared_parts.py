"""The parts that the sources of one worker process share, and the share of each source.

If the process dies here, no delivery has been read through these connections, or it is pending under the name of its consumer.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import msgspec

from ingest.flow.availability import until_ready
from ingest.flow.clock import SharedClock
from ingest.flow.isolation import Isolation
from ingest.flow.shares import Share, Shares
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.store.shared_connections import SharedConnections

if TYPE_CHECKING:
    from ingest.settings import Settings


class Limits(msgspec.Struct, frozen=True):
    """The shares of one source.

    Attributes:
        slots: of the orders in flight.
        buffer: of the documents between fetch and commit, and of their bytes.
        isolation: of entries, from the other sources.
    """

    slots: Share
    buffer: tuple[Share, Share]
    isolation: Isolation


class SharedParts(msgspec.Struct, frozen=True):
    """The parts that the sources of one process share.

    Attributes:
        queue: connections to Redis.
        store: connections to PostgreSQL.
        clock: the queue server's time.
        slots: orders in flight.
        rows: documents between fetch and commit.
        size: bytes of these documents.
        isolation: of entries that may kill the process.
    """

    queue: QueueConnections
    store: SharedConnections
    clock: SharedClock
    slots: Shares
    rows: Shares
    size: Shares
    isolation: Isolation

    @contextmanager
    def limits(self) -> Iterator[Limits]:
        """Give a source its share of each limit while the block runs."""
        with ExitStack() as stack:

            def share_of(shares: Shares) -> Share:
                share = shares.add()
                stack.callback(shares.remove, share)
                return share

            yield Limits(share_of(self.slots), (share_of(self.rows), share_of(self.size)), self.isolation)


@asynccontextmanager
async def shared_parts(settings: "Settings") -> AsyncIterator[SharedParts]:
    """Open the parts that the sources of one process share. Waits for unavailable servers.

    Raises:
        UserError: a server denies access.
    """
    async with AsyncExitStack() as stack:

        async def open_connections() -> SharedConnections:
            dsn = settings.postgres_dsn.get_secret_value()
            return await stack.enter_async_context(SharedConnections.open(dsn))

        store = await until_ready("postgres", open_connections)
        queue = await stack.enter_async_context(QueueConnections.open(settings.redis_url.get_secret_value()))
        totals = (settings.concurrency, settings.batch_rows, settings.batch_bytes)
        slots, rows, size = map(Shares, totals)
        yield SharedParts(queue, store, SharedClock(), slots, rows, size, Isolation())
