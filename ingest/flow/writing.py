"""Writes rows with as few statements as they allow: halves what is too slow, and finds which rows are refused.

A row whose lease was lost is never written. When the process dies here, rows are stored whose entries are still pending; those
are delivered again and change nothing.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum, auto

import msgspec

from ingest.domain.delivery import Effect, EntryRef
from ingest.domain.errors import RowsRefused, StoreLocked, StoreTooSlow, StoreUnavailable
from ingest.domain.order_row import OrderRow
from ingest.flow.availability import until_available
from ingest.flow.heartbeat import Heartbeats
from ingest.flow.in_flight import InFlight
from ingest.flow.items import Item, Refusal, Written, fresh_item
from ingest.flow.ports import Store
from ingest.telemetry.activity import record_activity
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_log = get_logger("writing")

# Documents in one statement: PostgreSQL takes some 50 ms for each MB, and encoding one blocks the event loop for some 20 ms.
_STATEMENT_BYTES = 8 * 1024 * 1024
# Up to this many locked rows of a statement are left out, or half of its rows: more are rather a change of the whole table.
_FEW_LOCKED = 4
# Statements that have met a locked row, each with fewer rows than the one before, after which a search ends.
_MOST_LOCKED = 16
# Orders whose rows were locked that are remembered.
_MOST_KNOWN = 10_000
# Rows refused one by one, and none accepted, after which a search ends for now: it is rather the table.
_MOST_REFUSED = 4
_OUTCOME = {
    Effect.INSERTED: "stored",
    Effect.CHANGED: "stored",
    Effect.UNCHANGED: "unchanged",
    Effect.ERASED: "erased",
}


class _TooMuchAtOnce(Exception):
    """Several rows were not stored in time: fewer may be."""


class _RowsLocked(Exception):
    """Somebody has locked some of the rows.

    Attributes:
        order_ids: of those rows; none if nobody knows which.
    """

    def __init__(self, order_ids: Collection[str] = ()) -> None:
        super().__init__()
        self.order_ids = order_ids


class _Locks(Enum):
    """What is known of locks on rows that are to be written together."""

    NONE = auto()  # as nearly always: written with a statement that waits for them
    SOUGHT = auto()  # such a statement has waited too long
    EXPECTED = auto()  # all of them were locked before
    WAITED_FOR = auto()  # too many: it is rather the table


class _Part(msgspec.Struct, frozen=True):
    items: list[Item]
    locks: _Locks = _Locks.NONE

    def halves(self) -> "tuple[_Part, _Part]":
        half = len(self.items) // 2
        return _Part(self.items[:half], self.locks), _Part(self.items[half:], self.locks)


class Writer:
    """Writes rows for one process, a statement at a time.

    Args:
        store: where to.
        in_flight: asked before each statement which deliveries are still ours.
        heartbeats: confirm that.
        metrics: outcomes, latencies, statements.
        rows: most rows of a statement.
        now: wall clock in Unix seconds, for latencies.
    """

    def __init__(
        self,
        store: Store,
        in_flight: InFlight,
        heartbeats: Heartbeats,
        metrics: WorkerMetrics,
        rows: int,
        *,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._in_flight = in_flight
        self._heartbeats = heartbeats
        self._metrics = metrics
        self._most = rows
        self._limit = rows
        self._now = now
        # Entries of which a statement has failed that may have been executed.
        self._uncertain: set[EntryRef] = set()
        # Orders whose rows somebody has locked. They are announced again, and are not to keep others waiting each time.
        self._locked: set[str] = set()

    def fitting(self, items: Sequence[Item]) -> int:
        """How many of the items, from the first on, one statement takes: at least one."""
        size = rows = 0
        for count, item in enumerate(items):
            size += item.size
            rows += len(item.rows)
            if count and (rows > self._limit or size > _STATEMENT_BYTES):
                return count
        return len(items)

    async def write(self, items: Sequence[Item], *, to_the_end: bool = False) -> Written:
        """Write the rows; while PostgreSQL is unavailable, wait.

        A refused row is found by halving, and so are locked ones, which are left out. Returns early, with rows untried, when rows are
        too slow together, and, unless `to_the_end`, when several are refused and none is accepted.
        """
        written, suspects, searched = Written(), 0, 0
        parts = deque(self._parts(items))
        while parts:
            part = parts.popleft()
            try:
                await self._write_part(part, written)
            except _TooMuchAtOnce:
                record_activity()
                self._limit = max(1, sum(len(item.rows) for item in part.items) // 2)
                _log.warning("batch_halved", rows=self._limit)
                parts.appendleft(part)
                break
            except _RowsLocked as found:
                record_activity()
                searched += 1
                # After the others: once some are stored, it is not the table.
                parts += self._without_locked(part, found.order_ids, written, is_long=searched > _MOST_LOCKED)
            except RowsRefused as error:
                if len(part.items) > 1:
                    parts.extendleft(reversed(part.halves()))
                    continue
                written.refused.append(Refusal(part.items[0], error))
                suspects += not error.is_certain
                if suspects >= _MOST_REFUSED and written.fresh is None and not to_the_end:
                    break
        written.untried = [item for part in parts for item in part.items]
        return written

    def _parts(self, items: Sequence[Item]) -> Iterator[_Part]:
        """The items as one statement each takes them; those whose rows were locked before come last, and by themselves."""
        expected, usual = _divided(items, self._is_expected)
        yield from map(_Part, self._split(usual))
        for some in self._split(expected):
            yield _Part(some, _Locks.EXPECTED)

    def _is_expected(self, item: Item) -> bool:
        return item.delivery.was_locked() or (
            bool(self._locked) and any(row.order_id in self._locked for row in item.rows)
        )

    def _without_locked(
        self, part: _Part, order_ids: Collection[str], written: Written, *, is_long: bool
    ) -> Iterable[_Part]:
        """What is still to be written of a part with locked rows; notes those that are locked."""
        if part.locks is _Locks.NONE:
            return (_Part(part.items, _Locks.SOUGHT),)
        locked, rest = _divided(part.items, lambda item: any(row.order_id in order_ids for row in item.rows))
        if not order_ids and (len(part.items) == 1 or (is_long and part.locks is _Locks.EXPECTED)):
            locked, rest = part.items, []
        self._note_locked(locked, written)
        if not rest:
            return ()
        if is_long and part.locks is _Locks.SOUGHT and not written.stored:
            return (_Part(rest, _Locks.WAITED_FOR),)
        return (_Part(rest, part.locks),) if locked else part.halves()

    def _note_locked(self, items: list[Item], written: Written) -> None:
        written.locked += items
        if len(self._locked) > _MOST_KNOWN:
            self._locked.clear()
        self._locked.update(row.order_id for item in items for row in item.rows)

    def _split(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        start = 0
        while start < len(items):
            count = self.fitting(items[start:] if start else items)
            yield list(items[start : start + count])
            start += count

    async def accepts(self, stored: Item) -> bool:
        """Whether the table accepts rows that it has accepted before; they are not changed by that."""
        return await until_available("postgres", self._try_again, stored)

    async def _try_again(self, stored: Item) -> bool:
        try:
            await self._store.upsert(stored.rows)
        except (RowsRefused, StoreLocked):
            return False
        return True

    async def _write_part(self, part: _Part, written: Written) -> None:
        ours, effects = await until_available("postgres", self._attempt, part)
        if len(ours) < len(part.items):
            kept = {item.delivery.entry for item in ours}
            written.lost += (item for item in part.items if item.delivery.entry not in kept)
        if self._locked:
            self._locked.difference_update(row.order_id for item in ours for row in item.rows)
        written.stored += ours
        written.effects += self._reported(ours, effects) if self._uncertain else effects
        written.fresh = fresh_item(ours, effects) or written.fresh
        self._limit = min(self._most, 2 * self._limit)
        now = self._now()
        if ours:
            self._metrics.last_success.set(now)
        for effect, count in Counter(effects).items():
            self._metrics.orders[_OUTCOME[effect]].inc(count)
        if skipped := sum([not item.rows for item in ours]):
            self._metrics.orders["skipped"].inc(skipped)
        self._metrics.order_latency.observe_all([max(0.0, now - item.delivery.enqueued_at) for item in ours])

    async def _attempt(self, part: _Part) -> tuple[list[Item], list[Effect]]:
        """One statement with those items that are still ours: others may have claimed some since the last attempt."""
        await self._heartbeats.confirm()
        ours = [item for item in part.items if self._in_flight.holds(item.delivery)]
        rows = [row for item in ours for row in item.rows]
        if not rows:
            return ours, []
        started = time.monotonic()
        try:
            effects = await self._upsert(rows, part.locks)
        except StoreUnavailable as error:
            if isinstance(error, StoreLocked):
                raise  # certainly not executed
            held = {delivery.entry for delivery in self._in_flight.held()}
            self._uncertain = held & (self._uncertain | {item.delivery.entry for item in ours})
            if not isinstance(error, StoreTooSlow):
                raise
            if len(ours) == 1:
                # All others wait for it: whatever keeps PostgreSQL from storing it has to be found.
                raise StoreTooSlow(f"order {ours[0].delivery.order_id}, alone: {error}") from error
            raise _TooMuchAtOnce from error
        self._metrics.store.observe(time.monotonic() - started)
        self._metrics.store_rows.observe(len(rows))
        return ours, effects

    async def _upsert(self, rows: Sequence[OrderRow], locks: _Locks) -> list[Effect]:
        """Write rows in the way that is right for what is known of locks.

        Raises:
            StoreLocked: if locks are waited for.
        """
        try:
            if locks is _Locks.NONE:
                return await self._store.upsert(rows)
            locked = await self._store.locked([row.order_id for row in rows])
            if locks is _Locks.SOUGHT and len(locked) > max(_FEW_LOCKED, len(rows) // 2):
                raise StoreUnavailable("other transactions have locked most of the rows")
            if locked and locks is not _Locks.WAITED_FOR:
                raise _RowsLocked(locked)
            return await self._store.upsert_unlocked(rows)
        except StoreLocked as error:
            if locks is _Locks.WAITED_FOR:
                raise
            raise _RowsLocked from error

    def _reported(self, ours: Sequence[Item], effects: Sequence[Effect]) -> list[Effect]:
        """The effects, of which those that nobody can be certain of count as changes: their first statement may have made them."""
        uncertain = [item.delivery.entry in self._uncertain for item in ours for _ in item.rows]
        self._uncertain -= {item.delivery.entry for item in ours}
        return [
            Effect.CHANGED if is_uncertain and effect is Effect.UNCHANGED else effect
            for effect, is_uncertain in zip(effects, uncertain, strict=True)
        ]


def _divided(items: Sequence[Item], question: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    """Those of which the answer is yes, and the others."""
    yes: list[Item] = []
    no: list[Item] = []
    for item in items:
        (yes if question(item) else no).append(item)
    return yes, no
