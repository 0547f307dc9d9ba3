"""Finds the rows of a batch that other transactions have locked, so that the other rows are stored without waiting for them.

A lock on a whole table, such as a partition or a table of a trigger, may concern some of the rows or all of them. The others are stored.

A row that another transaction has inserted and not committed counts as locked.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto

import msgspec

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import StoreLocked, StoreUnavailable, TableLocked
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.ports import Store
from ingest.flow.settle.rows import Item, Written

# Up to this many locked rows of a statement are left out, or half of its rows. More suggest a change of the whole table.
_FEW_LOCKED = 4
# Statements with a locked row, each with fewer rows than the last one, after which a search ends.
_MOST_LOCKED = 16
# The same while a table is locked, if no row was stored.
_MOST_BLOCKED = 64


class Blocked(Exception):
    """Another session has locked a table that the rows need.

    Attributes:
        error: describes it. None if the statement did not wait long enough to find it.
    """

    def __init__(self, error: TableLocked | None) -> None:
        super().__init__()
        self.error = error


class RowsLocked(Exception):
    """Another session has locked some of the rows.

    Attributes:
        order_ids: the orders of those rows, or empty if they are unknown.
    """

    def __init__(self, order_ids: Collection[str] = ()) -> None:
        super().__init__()
        self.order_ids = order_ids


class Locks(Enum):
    """The knowledge about locks on rows that are written together."""

    NONE = auto()  # the usual case: the statement waits for locks
    SOUGHT = auto()  # such a statement has waited too long
    EXPECTED = auto()  # all of the rows were locked before
    WAITED_FOR = auto()  # most are locked, so that the table is the likely cause
    OF_TABLE = auto()  # another session has locked a table


class StatementPart(msgspec.Struct, frozen=True):
    """Items whose rows are written with one statement."""

    items: list[Item]
    locks: Locks = Locks.NONE

    def halves(self) -> "tuple[StatementPart, StatementPart]":
        """The first half and the second."""
        half = len(self.items) // 2
        return StatementPart(self.items[:half], self.locks), StatementPart(self.items[half:], self.locks)


async def upsert(store: Store, rows: Sequence[OrderRow], locks: Locks) -> list[Effect]:
    """Write rows in the way that suits the locks.

    Raises:
        Blocked: if a table is locked, see `without_blocked`.
        RowsLocked: if rows are locked, see `without_locked`.
        StoreLocked: if the statement has waited for locks.
    """
    try:
        if locks is Locks.NONE:
            return await store.upsert(rows)
        if locks is Locks.OF_TABLE:
            return await store.upsert_unlocked(rows)
        locked = await store.locked([row.order_id for row in rows])
        if locks is Locks.SOUGHT and len(locked) > max(_FEW_LOCKED, len(rows) // 2):
            raise StoreUnavailable("other transactions have locked most of the rows")
        if locked and locks is not Locks.WAITED_FOR:
            raise RowsLocked(locked)
        return await store.upsert_unlocked(rows)
    except TableLocked as error:
        raise Blocked(error) from error
    except StoreLocked as error:
        if locks is Locks.OF_TABLE:
            raise Blocked(None) from error
        if locks is Locks.WAITED_FOR:
            raise
        raise RowsLocked from error


def without_locked(
    part: StatementPart, order_ids: Collection[str], written: Written, searched: int
) -> Iterable[StatementPart]:
    """The parts that remain to be written of a part with locked rows, which are added to `written`.

    Args:
        part: the part for which `upsert` has raised `RowsLocked`.
        order_ids: of that error.
        written: the results of this write.
        searched: how many times `upsert` has raised the error in this write.
    """
    if part.locks is Locks.NONE:
        return (StatementPart(part.items, Locks.SOUGHT),)
    is_long = searched > _MOST_LOCKED
    locked, rest = _divided(part.items, lambda item: any(row.order_id in order_ids for row in item.rows))
    if not order_ids and (len(part.items) == 1 or (is_long and part.locks is Locks.EXPECTED)):
        locked, rest = part.items, []
    written.locked += locked
    if not rest:
        return ()
    if is_long and part.locks is Locks.SOUGHT and not written.stored:
        return (StatementPart(rest, Locks.WAITED_FOR),)
    return (StatementPart(rest, part.locks),) if locked else part.halves()


def without_blocked(
    part: StatementPart, error: TableLocked | None, written: Written, searched: int
) -> Iterable[StatementPart]:
    """The parts that may be stored of a part for which `upsert` has raised `Blocked`, while the others are added to `written`."""
    written.blocker = error or written.blocker
    if part.locks is not Locks.OF_TABLE:
        return (StatementPart(part.items, Locks.OF_TABLE),)
    if error is None and len(part.items) > 1 and (written.stored or searched <= _MOST_BLOCKED):
        return part.halves()
    written.blocked += part.items
    return ()


def expected(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Divide items into those whose rows were locked before, according to their retry, and the others.

    Orders with locked rows are delivered again, and should not block other orders each time.
    """
    if not any(item.delivery.was_locked() for item in items):
        return [], list(items)
    return _divided(items, lambda item: item.delivery.was_locked())


def _divided(items: Sequence[Item], question: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    return [item for item in items if question(item)], [item for item in items if not question(item)]
