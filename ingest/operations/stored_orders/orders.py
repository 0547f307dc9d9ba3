"""Finds orders for concurrent requests, lists stored orders, and erases orders permanently.

An order moves from the queue to the database, so the queue is searched first. If an order is in neither, the database is searched
again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from ingest.domain.errors import QueueUnavailable
from ingest.domain.orders.order_filter import OrderFilter, OrderPlace, OrderPosition
from ingest.domain.orders.order_history import OrderHistory
from ingest.domain.orders.order_state import OrderState, QueueEntry
from ingest.operations.audit import Operation, ending
from ingest.operations.backends import Backends
from ingest.operations.declared import ERASE
from ingest.operations.shared_calls import SharedCalls
from ingest.operations.stored_orders.history import read_history
from ingest.operations.stored_orders.order_connections import OrderConnections
from ingest.operations.stored_orders.order_places import order_state
from ingest.queue.operate.erasing import QueueEraser, Removed
from ingest.queue.operate.order_search import MOST_ORDERS, OrderSearch, Searched
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.redis.connection import control_client
from ingest.store.audit import AuditLog
from ingest.store.connections.connection import COMMAND_TIMEOUT
from ingest.store.connections.pool import Pool
from ingest.store.orders.erasing import erase_rows
from ingest.store.orders.order_reading import OrderReader, StoredState, newest_orders

# Limits the cost of a request. Longer lanes, retry sets and lists of dead letters are not searched.
SEARCHED_ENTRIES = 20_000
_TOO_LONG = f"the queue is too long to be searched: a part of it has more than {SEARCHED_ENTRIES:,} entries"
_NOT_READ = "the queue cannot be read right now"
# Approximate cost for Redis of examining an entry, and the number of entries to examine without a pause.
_SECONDS_PER_ENTRY = 5e-6
_FEW_ENTRIES = 1000
# Rows of one statement, which may need about 25 MB together.
_ROWS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Erased:
    """Numbers of rows and entries that an erasure has removed. The orders stay erased even if all are zero.

    Attributes:
        rows: rows in the database.
        retries: orders that waited for their next attempt.
        dead_letters: dead letters of all groups.
    """

    rows: int
    retries: int
    dead_letters: int


async def erase(
    backends: Backends, order_ids: Sequence[str], actor: str, *, on_progress: Callable[[int], None] = lambda _: None
) -> Erased:
    """Erase orders permanently, first from the database and then from the queue.

    The row in `erased_orders` prevents an order from being stored again. Calling again is safe, and completes an
    interrupted erasure. Progress is the number of orders erased from the database, counted from the start of the list.

    Raises:
        StoreUnavailable: the next `MOST_ORDERS` were not erased, or the response was lost.
        QueueUnavailable: retries and dead letters of orders already erased from the database may remain.
    """
    dsn = backends.postgres_dsn
    async with control_client(backends.redis_url) as client, Pool.open(dsn, size=1, timeout=COMMAND_TIMEOUT) as pool:
        eraser = QueueEraser(client, layout_reader(client, backends.stream), backends.group)
        audit_log = AuditLog(pool, backends.source)
        total = Erased(0, 0, 0)
        for start in range(0, len(order_ids), MOST_ORDERS):
            some = order_ids[start : start + MOST_ORDERS]
            operation = await _erase_rows(pool, backends.source, some, actor)
            on_progress(start + len(some))
            removed = await _clear_queue(operation, audit_log, eraser.erase(some))
            total = Erased(
                total.rows + removed.rows,
                total.retries + removed.retries,
                total.dead_letters + removed.dead_letters,
            )
        return total


async def _erase_rows(pool: Pool, source: str, order_ids: Sequence[str], actor: str) -> Operation:
    operation = Operation(actor, ERASE, {"ids": sorted(set(order_ids))})
    operation.count = await erase_rows(
        pool, order_ids, operation=operation.id, actor=actor, action=ERASE.name, source=source
    )
    return operation


async def _clear_queue(operation: Operation, audit_log: AuditLog, clearing: Awaitable[Mapping[str, Removed]]) -> Erased:
    rows = operation.count
    async with ending(audit_log, operation):
        removed = (await clearing).values()
        erased = Erased(rows, sum(each.retries for each in removed), sum(each.dead_letters for each in removed))
        operation.count = erased.rows + erased.retries + erased.dead_letters
    return erased


class Orders:
    """Serves many concurrent calls for one source, which share searches and statements.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now.
    """

    def __init__(self, backends: Backends, connections: OrderConnections) -> None:
        self._backends = backends
        layout = LayoutRecord(connections.client, backends.stream, backends.partitions).recent
        self._search = OrderSearch(connections.client, layout, backends.group)
        self._reader = OrderReader(connections.pool, backends.source)
        self._pool = connections.pool
        self._lists = connections.lists
        self._lister = OrderReader(connections.lists, backends.source)
        self._audit_log = AuditLog(connections.pool, backends.source)
        eraser = QueueEraser(connections.client, layout, backends.group)
        self._searched = SharedCalls(self._search_all, most=MOST_ORDERS, rest=self._rest)
        self._stored = SharedCalls(self._reader.find_small, most=_ROWS_AT_ONCE)
        self._cleared = SharedCalls(eraser.erase, most=MOST_ORDERS)
        self._examined = 0
        self._erasing = connections.erasing

    @classmethod
    @asynccontextmanager
    async def open(cls, backends: Backends, connections: OrderConnections) -> AsyncIterator[Self]:
        """Open for one source, and end its calls."""
        orders = cls(backends, connections)
        try:
            yield orders
        finally:
            for calls in (orders._searched, orders._stored, orders._cleared):
                await calls.close()

    async def locate(self, order_id: str, before_large: Callable[[], Awaitable[None]]) -> OrderState:
        """Find an order at a limited cost. A queue that is too long or unavailable is not searched.

        Args:
            order_id: a valid order ID.
            before_large: awaited before large lines and attributes are read, which may need 25 MB for a moment.

        Raises:
            QueueUnavailable: the order is not in the database, and Redis is unavailable.
        """
        searching = self._searched(order_id)
        try:
            stored = await self._row(order_id, before_large)
        except BaseException:
            if not searching.cancel() and not searching.cancelled():
                searching.exception()  # retrieved, so that asyncio does not log it
            raise
        is_stored = stored.row is not None or stored.erased_at is not None
        try:
            searched = await searching
        except QueueUnavailable:
            if not is_stored:
                raise
            return self._state(order_id, (), stored, _NOT_READ)
        if not is_stored:
            # It may have been stored between the first query and the search of the queue.
            stored = await self._row(order_id, before_large)
        entries = searched.entries.get(order_id, ())
        return self._state(order_id, entries, stored, "" if searched.is_complete else _TOO_LONG)

    async def history(self, order_id: str, before: datetime | None, limit: int) -> OrderHistory:
        """Return a page of the events of an order. See `read_history`."""
        return await read_history(self._pool, self._backends.source, order_id, before, limit)

    async def document(self, order_id: str) -> bytes | None:
        """Return the raw document of a stored order as JSON, or None if none is kept."""
        return await self._reader.document(order_id)

    async def page(self, selection: OrderFilter, after: OrderPosition, limit: int) -> list[dict[str, Any]]:
        """Return the next stored orders after this position, without lines. See `OrderReader.page`.

        Raises:
            StoreTooSlow: too many rows had to be examined.
        """
        return await self._lister.page(selection, after, limit)

    async def newest(
        self, sources: Sequence[str], selection: OrderFilter, before: OrderPlace | None, limit: int
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return stored orders of several sources, which share the connections. See `newest_orders`."""
        return await newest_orders(self._lists, sources, selection, before, limit)

    async def count(self, selection: OrderFilter) -> int:
        """Count the stored orders that match. Errors as for `page`."""
        return await self._lister.count(selection)

    async def erase(self, order_id: str, actor: str) -> Erased:
        """Erase an order permanently. See `erase`."""
        async with self._erasing:
            operation = await _erase_rows(self._pool, self._backends.source, [order_id], actor)
        return await _clear_queue(operation, self._audit_log, self._clear(order_id))

    async def _row(self, order_id: str, before_large: Callable[[], Awaitable[None]]) -> StoredState:
        if (small := await self._stored(order_id)) is not None:
            return small
        await before_large()
        return (await self._reader.find([order_id]))[order_id]

    async def _search_all(self, order_ids: Sequence[str]) -> Mapping[str, Searched]:
        def on_progress(examined: int) -> None:
            self._examined = examined

        searched = await self._search.find(order_ids, limit=SEARCHED_ENTRIES, on_progress=on_progress)
        return dict.fromkeys(order_ids, searched)

    def _state(self, order_id: str, entries: Sequence[QueueEntry], stored: StoredState, problem: str) -> OrderState:
        return order_state(self._backends.source, order_id, entries, stored, problem)

    def _rest(self) -> float:
        # Searches of a long queue may take at most a quarter of Redis' time. Short ones need no pause.
        return 3 * self._examined * _SECONDS_PER_ENTRY if self._examined > _FEW_ENTRIES else 0.0

    async def _clear(self, order_id: str) -> Mapping[str, Removed]:
        return {order_id: await self._cleared(order_id)}
