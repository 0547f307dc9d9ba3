"""The orders table in memory, which implements `Store`."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import RowsRefused, StoreLocked, StoreTooSlow, StoreUnavailable
from ingest.domain.orders.order_row import OrderRow

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryStore:
    """Rows by order ID, guarded by version.

    Attributes:
        rows: the stored rows.
        erased: orders that are not stored again.
        refuses: function of the test that selects rows to reject.
        suppresses: function of the test that selects rows that a trigger suppresses without an error.
        is_certain: whether a rejected row is at fault for certain.
        most: rows that one statement can store in time, or 0 for a locked table.
        locked_ids: stored orders whose rows are locked.
        inserting_ids: orders that another session has inserted and not committed.
        waits: order IDs of each statement that has waited for a lock.
        is_available: whether calls succeed.
        lost_replies: number of replies to lose after the rows are stored.
        answers: while this is not set, statements hang.
        statements: the order IDs of each statement, in order.
    """

    def __init__(self) -> None:
        self.rows: dict[str, OrderRow] = {}
        self.erased: set[str] = set()
        self.refuses: Callable[[OrderRow], bool] = lambda _: False
        self.suppresses: Callable[[OrderRow], bool] = lambda _: False
        self.is_certain = False
        self.most = 100_000
        self.locked_ids: set[str] = set()
        self.inserting_ids: set[str] = set()
        self.waits: list[list[str]] = []
        self.is_available = True
        self.lost_replies = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.statements: list[list[str]] = []

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        self.statements.append([row.order_id for row in rows])
        await asyncio.sleep(0)
        await self.answers.wait()
        if not self.is_available:
            raise StoreUnavailable("connection refused")
        if len(rows) > self.most:
            raise StoreTooSlow(f"{len(rows)} rows are too many")
        if self._needs_locked(rows):
            self.waits.append([row.order_id for row in rows])
            raise StoreLocked("a row is locked")
        if any(self.refuses(row) for row in rows if row.order_id not in self.erased):
            raise RowsRefused("a constraint", is_certain=self.is_certain)
        effects = self._store(rows)
        if self.lost_replies:
            self.lost_replies -= 1
            raise StoreUnavailable("the connection was lost before the reply")
        return effects

    async def upsert_unlocked(self, rows: Sequence[OrderRow]) -> list[Effect]:
        if self.is_available and self._needs_locked(rows):
            raise StoreLocked("a row is locked")
        return await self.upsert(rows)

    def _needs_locked(self, rows: Sequence[OrderRow]) -> bool:
        return any(row.order_id in self.inserting_ids | (self.locked_ids & self.rows.keys()) for row in rows)

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        if not (self.is_available and self.most):
            raise StoreUnavailable("connection refused")
        return self.locked_ids & self.rows.keys() & set(order_ids)

    async def stored_since(self, times: Mapping[str, datetime]) -> set[str]:
        if not self.is_available:
            raise StoreUnavailable("connection refused")
        return {name for name, at in times.items() if name in self.rows and self.rows[name].fetched_at > at}

    async def some_stored(self, count: int) -> list[str]:
        if not self.is_available:
            raise StoreUnavailable("connection refused")
        ordered = sorted(self.rows)
        return sorted({*ordered[: count // 2], *ordered[len(ordered) - (count + 1) // 2 :]})

    async def would_update(self, rows: Sequence[OrderRow]) -> bool:
        if not self.is_available:
            raise StoreUnavailable("connection refused")
        if any(self.refuses(row) for row in rows):
            raise RowsRefused("a constraint", is_certain=self.is_certain)
        return any(self.rows[row.order_id].age <= row.age and not self.suppresses(row) for row in rows)

    def _store(self, rows: Sequence[OrderRow]) -> list[Effect]:
        newest: dict[str, OrderRow] = {}
        for row in rows:
            if row.order_id not in newest or newest[row.order_id].age < row.age:
                newest[row.order_id] = row
        effects = {order_id: self._store_one(row) for order_id, row in newest.items()}
        return [
            effects[row.order_id]
            if newest[row.order_id] is row or effects[row.order_id] is Effect.SUPPRESSED
            else Effect.UNCHANGED
            for row in rows
        ]

    def _store_one(self, row: OrderRow) -> Effect:
        order_id = row.order_id
        if order_id in self.erased:
            return Effect.ERASED
        stored = self.rows.get(order_id)
        if stored is not None and stored.age >= row.age:
            return Effect.UNCHANGED
        if self.suppresses(row):
            return Effect.SUPPRESSED if stored is None or _content(stored) != _content(row) else Effect.UNCHANGED
        self.rows[order_id] = row
        if stored is None:
            return Effect.INSERTED
        return Effect.UNCHANGED if _content(stored) == _content(row) else Effect.CHANGED


def _content(row: OrderRow) -> OrderRow:
    return msgspec.structs.replace(row, fetched_at=_ANY_TIME, attempts=0, enqueued_at=0.0)
