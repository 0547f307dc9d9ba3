"""Finds orders wherever they are, lists the stored ones, and erases orders for good.

An order moves from the queue to the database, so the queue is searched first; an order that is found nowhere is looked for in
the database once more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from ingest.domain.errors import QueueUnavailable
from ingest.domain.orders.order_state import IngestionState, OrderState, QueueEntry
from ingest.operations.audit import Operation, ending
from ingest.operations.backends import Backends
from ingest.operations.shared_calls import SharedCalls
from ingest.queue.operate.erasing import QueueEraser, Removed
from ingest.queue.operate.order_search import MOST_ORDERS, OrderSearch, Searched
from ingest.queue.redis.connection import control_client
from ingest.store.audit import AuditLog
from ingest.store.orders.erasing import erase_rows
from ingest.store.orders.order_reading import OrderFilter, OrderReader, StoredState
from ingest.store.pool import Pool

__all__ = ["Erased", "IngestionState", "OrderFilter", "OrderState", "Orders", "as_object", "erase", "locate"]

ERASE = "orders.erase"
# What a request may cost: longer lanes, retry sets and dead letters are not searched.
SEARCHED_ENTRIES = 20_000
_TOO_LONG = f"the queue is too long to be searched: a part of it has more than {SEARCHED_ENTRIES:,} entries"
_NOT_READ = "the queue cannot be read right now"
# What looking at an entry costs Redis, about; and how many may be looked at without a pause.
_SECONDS_PER_ENTRY = 5e-6
_FEW_ENTRIES = 1000
# Rows of one statement: each may have a thousand lines.
_ROWS_AT_ONCE = 50
_LIST_TIMEOUT = 5.0

_EraseRows = Callable[[Sequence[str], Operation], Awaitable[int]]
_Clear = Callable[[Sequence[str]], Awaitable[Mapping[str, Removed]]]


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure has removed; the orders stay erased whatever it was.

    Attributes:
        rows: of the database.
        retries: orders that waited for another attempt.
        dead_letters: of all groups.
    """

    rows: int
    retries: int
    dead_letters: int


async def locate(
    backends: Backends, order_ids: Sequence[str], *, on_progress: Callable[[int], None] = lambda _: None
) -> list[OrderState]:
    """Find orders, in all of the queue and in the database.

    Args:
        backends: where to look.
        order_ids: valid order IDs.
        on_progress: called with how many entries of the queue were looked at so far.

    Raises:
        Unavailable: Redis or PostgreSQL cannot be used right now.
    """
    async with control_client(backends.redis_url) as client, Pool.open(backends.postgres_dsn, size=1) as pool:
        search, reader = OrderSearch(client, backends.stream, backends.group), OrderReader(pool)
        states: list[OrderState] = []
        for start in range(0, len(order_ids), MOST_ORDERS):
            some = order_ids[start : start + MOST_ORDERS]
            searched = await search.find(some, on_progress=on_progress)
            stored = await reader.find(some)
            states += [_state(order_id, searched.entries.get(order_id, ()), stored[order_id]) for order_id in some]
        return states


async def erase(
    backends: Backends, order_ids: Sequence[str], actor: str, *, on_progress: Callable[[int], None] = lambda _: None
) -> Erased:
    """Erase orders for good: first in the database, which alone makes that they do not come back, then in the queue.

    Doing it again is safe, and finishes what was interrupted.

    Args:
        backends: where the orders are.
        order_ids: valid order IDs.
        actor: who erases them, for the audit log.
        on_progress: called with how many orders are erased from the database: they are the first ones of the list.

    Raises:
        StoreUnavailable: the next `MOST_ORDERS` were not erased; or they were, and the answer was lost.
        QueueUnavailable: retries and dead letters of the orders that are erased from the database may remain.
    """
    async with control_client(backends.redis_url) as client, Pool.open(backends.postgres_dsn, size=1) as pool:
        eraser = QueueEraser(client, backends.stream, backends.group)
        total = Erased(0, 0, 0)
        for start in range(0, len(order_ids), MOST_ORDERS):
            some = order_ids[start : start + MOST_ORDERS]

            async def erase_some(ids: Sequence[str], operation: Operation, before: int = start) -> int:
                rows = await _erase_rows(backends, ids, operation)
                on_progress(before + len(ids))
                return rows

            removed = await _erase(erase_some, AuditLog(pool), some, actor, eraser.erase)
            total = Erased(
                total.rows + removed.rows,
                total.retries + removed.retries,
                total.dead_letters + removed.dead_letters,
            )
        return total


async def _erase(
    erase_from_database: _EraseRows, audit_log: AuditLog, order_ids: Sequence[str], actor: str, clear_queue: _Clear
) -> Erased:
    operation = Operation(actor, ERASE, {"ids": sorted(set(order_ids))})
    rows = await erase_from_database(order_ids, operation)
    async with ending(audit_log, operation):
        operation.count = rows
        removed = (await clear_queue(order_ids)).values()
        erased = Erased(rows, sum(each.retries for each in removed), sum(each.dead_letters for each in removed))
        operation.count = erased.rows + erased.retries + erased.dead_letters
    return erased


async def _erase_rows(backends: Backends, order_ids: Sequence[str], operation: Operation) -> int:
    return await erase_rows(
        backends.postgres_dsn, order_ids, operation=operation.id, actor=operation.actor, action=operation.action
    )


class Orders:
    """The orders, for many concurrent calls: they share searches and statements.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now.

    Args:
        backends: where the orders are.
        search: looks in the queue.
        eraser: removes from the queue.
        pool: connections to the database.
        lists: others, for statements that may take long.
    """

    def __init__(self, backends: Backends, search: OrderSearch, eraser: QueueEraser, pool: Pool, lists: Pool) -> None:
        self._backends = backends
        self._search = search
        self._reader, self._lister = OrderReader(pool), OrderReader(lists)
        self._audit_log = AuditLog(pool)
        self._searched = SharedCalls(self._search_all, most=MOST_ORDERS, rest=self._rest)
        self._stored = SharedCalls(self._reader.find, most=_ROWS_AT_ONCE, at_once=4)
        self._cleared = SharedCalls(eraser.erase, most=MOST_ORDERS)
        self._examined = 0
        # Each erasure has a connection of its own.
        self._erasing = asyncio.Semaphore(2)

    @classmethod
    @asynccontextmanager
    async def open(cls, backends: Backends) -> AsyncIterator[Self]:
        """With connections of its own, which are opened when they are first needed."""
        async with (
            control_client(backends.redis_url) as client,
            Pool.open(backends.postgres_dsn, size=4) as pool,
            Pool.open(backends.postgres_dsn, size=4, timeout=_LIST_TIMEOUT) as lists,
        ):
            search = OrderSearch(client, backends.stream, backends.group)
            orders = cls(backends, search, QueueEraser(client, backends.stream, backends.group), pool, lists)
            try:
                yield orders
            finally:
                for calls in (orders._searched, orders._stored, orders._cleared):
                    await calls.close()

    async def locate(self, order_id: str) -> OrderState:
        """Find an order, at a limited cost: a queue that is too long, or unavailable, is not searched.

        Raises:
            QueueUnavailable: the database does not know the order, and Redis cannot be used.
        """
        searching = self._searched(order_id)
        try:
            stored = await self._stored(order_id)
        except BaseException:
            if not searching.cancel() and not searching.cancelled():
                searching.exception()  # looked at, so that it is not logged as lost
            raise
        is_stored = stored.row is not None or stored.erased_at is not None
        try:
            searched = await searching
        except QueueUnavailable:
            if not is_stored:
                raise
            return _state(order_id, (), stored, _NOT_READ)
        if not is_stored:
            # It may have been stored after the first look, and before the queue was searched.
            stored = await self._stored(order_id)
        entries = searched.entries.get(order_id, ())
        return _state(order_id, entries, stored, "" if searched.is_complete else _TOO_LONG)

    async def page(self, selection: OrderFilter, after: str, limit: int) -> list[dict[str, Any]]:
        """The next stored orders after this ID, in the order of their IDs, without lines.

        Raises:
            StoreTooSlow: too many rows had to be looked at.
        """
        return await self._lister.page(selection, after, limit)

    async def erase(self, order_id: str, actor: str) -> Erased:
        """Erase an order for good; see `erase`."""
        return await _erase(self._erase_rows, self._audit_log, [order_id], actor, self._clear)

    async def _erase_rows(self, order_ids: Sequence[str], operation: Operation) -> int:
        async with self._erasing:
            return await _erase_rows(self._backends, order_ids, operation)

    async def _search_all(self, order_ids: Sequence[str]) -> Mapping[str, Searched]:
        def on_progress(examined: int) -> None:
            self._examined = examined

        searched = await self._search.find(order_ids, limit=SEARCHED_ENTRIES, on_progress=on_progress)
        return dict.fromkeys(order_ids, searched)

    def _rest(self) -> float:
        # So that searches of a long queue take no more than a quarter of Redis' time. Short ones follow each other at once.
        return 3 * self._examined * _SECONDS_PER_ENTRY if self._examined > _FEW_ENTRIES else 0.0

    async def _clear(self, order_ids: Sequence[str]) -> Mapping[str, Removed]:
        return {order_id: await self._cleared(order_id) for order_id in order_ids}


def _state(order_id: str, entries: Sequence[QueueEntry], stored: StoredState, problem: str = "") -> OrderState:
    return OrderState(order_id, stored.row, stored.erased_at, entries, searched=not problem, problem=problem)


def as_object(state: OrderState) -> dict[str, Any]:
    """All that is known of an order, for msgspec to write as JSON; times are in UTC."""
    row = state.row or {"order": None, "row": None}
    ingestion: dict[str, Any] = {
        "state": state.state.value,
        "searched": state.searched,
        "entries": [_entry_as_object(entry) for entry in state.entries],
    }
    if state.problem:
        ingestion["problem"] = state.problem
    return {
        "order_id": state.order_id,
        "order": row["order"],
        "row": row["row"],
        "erased_at": state.erased_at,
        "ingestion": ingestion,
    }


def _entry_as_object(entry: QueueEntry) -> dict[str, Any]:
    # The order's ID is above all of its entries, and `name` is for Redis.
    about: dict[str, Any] = {name: getattr(entry, name) for name in entry.__slots__ if name not in {"order_id", "name"}}
    return {"state": entry.state.value} | about
