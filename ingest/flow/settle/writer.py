"""Writes rows with few statements, halves batches that are too slow, and finds the rows that PostgreSQL rejects.

A row whose lease was lost is never written. If the process dies here, rows are stored whose entries are still pending. They are
delivered again and change nothing.
"""

import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from ingest.domain.deliveries.delivery import Effect, EntryRef
from ingest.domain.errors import (
    RowsRefused,
    RowSuppressed,
    StoreInterrupted,
    StoreLocked,
    StoreTooSlow,
    StoreUnavailable,
    TableLocked,
)
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.availability import AvailabilityLog, until_available
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.ports import Store
from ingest.flow.settle import locked_rows
from ingest.flow.settle.locked_rows import Blocked, Locks, RowsLocked, StatementPart
from ingest.flow.settle.rows import Item, Refusal, Written, fresh_item, with_effects
from ingest.telemetry.activity import record_activity
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_T = TypeVar("_T")
_log = get_logger("writing")

# Bytes of documents in one statement. PostgreSQL takes about 50 ms for each MB, and encoding it blocks the event loop for about 20 ms.
_STATEMENT_BYTES = 8 * 1024 * 1024
# Rows rejected one by one without an accepted row, after which a search ends because the table is the likely cause.
_MOST_REFUSED = 4
# Connections lost in a row during a statement, after which the statement may be the cause: it needs too much memory, or takes longer
# than a proxy keeps connections.
_MOST_INTERRUPTED = 3
_OUTCOME = {
    Effect.INSERTED: "stored",
    Effect.CHANGED: "stored",
    Effect.UNCHANGED: "unchanged",
    Effect.ERASED: "erased",
}


class _TooMuchAtOnce(Exception):
    """Several rows took too long together, or lost their connections. Fewer rows may be stored."""


class Writer:
    """Writes rows for one process, one statement after the other. `availability` is of PostgreSQL.

    Attributes:
        stored: rows that it has inserted or changed.

    Args:
        rows: most rows of a statement.
        now: wall clock in Unix seconds, for latencies.
    """

    def __init__(
        self,
        store: Store,
        held: Held,
        heartbeats: Heartbeats,
        metrics: WorkerMetrics,
        rows: int,
        *,
        now: Callable[[], float],
    ) -> None:
        self.stored = 0
        self._store = store
        self._held = held
        self._heartbeats = heartbeats
        self._metrics = metrics
        self._most = rows
        self._limit = rows
        self._now = now
        self.availability = AvailabilityLog("postgres")
        # Entries of which a statement has failed that may have been executed.
        self._uncertain: set[EntryRef] = set()
        # Statements in a row that have lost their connections.
        self._interrupted = 0

    def fitting(self, items: Sequence[Item]) -> int:
        """How many items, from the first on, fit into one statement. At least one."""
        size = rows = 0
        for count, item in enumerate(items):
            size += item.size
            rows += len(item.rows)
            if count and (rows > self._limit or size > _STATEMENT_BYTES):
                return count
        return len(items)

    async def write(self, items: Sequence[Item], locks: Locks = Locks.NONE, *, to_the_end: bool = False) -> Written:
        """Write the rows, waiting while PostgreSQL is unavailable.

        Rejected and locked rows are found by halving. Rows that are locked, or need a locked table, are left out, and a suppressed row is
        written in a separate statement.
        Returns early, with untried rows, if rows are too slow together, and, unless `to_the_end`, if several rows are rejected and
        none is accepted.
        """
        written, suspects, searched = Written(), 0, 0
        locked_before, usual = locked_rows.expected(items)
        # The usual ones first, because once some are stored, the table itself is not locked.
        parts = deque(StatementPart(some, locks) for some in self._split(usual))
        parts += (StatementPart(some, Locks.EXPECTED) for some in self._split(locked_before))
        while parts:
            part = parts.popleft()
            try:
                parts += await self._write_part(part, written)
            except _TooMuchAtOnce:
                record_activity()
                self._limit = max(1, sum(len(item.rows) for item in part.items) // 2)
                _log.warning("batch_halved", rows=self._limit)
                parts.appendleft(part)
                break
            except RowsLocked as found:
                record_activity()
                searched += 1
                parts += locked_rows.without_locked(part, found.order_ids, written, searched)
            except Blocked as found:
                searched += 1
                parts += locked_rows.without_blocked(part, found.error, written, searched)
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

    def _split(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        start = 0
        while start < len(items):
            count = self.fitting(items[start:] if start else items)
            yield list(items[start : start + count])
            start += count

    async def accepts(self, stored: Item) -> bool:
        """Whether the table still accepts rows that it has accepted before, which does not change them."""
        # This is no event of the order.
        rows = [msgspec.structs.replace(row, note=None) for row in stored.rows]
        effects = await until_available("postgres", self._unless_refused, self._store.upsert, rows)
        return effects is not None and Effect.SUPPRESSED not in effects

    async def would_update(self, stored: Item) -> bool:
        """Whether the table would accept an update of such rows, so that no trigger suppresses all of them."""
        return bool(await until_available("postgres", self._unless_refused, self._store.would_update, stored.rows))

    async def _unless_refused(
        self, call: Callable[[Sequence[OrderRow]], Awaitable[_T]], rows: Sequence[OrderRow]
    ) -> _T | None:
        try:
            return await call(rows)
        except (RowsRefused, StoreLocked, TableLocked):
            return None

    async def _write_part(self, part: StatementPart, written: Written) -> Iterable[StatementPart]:
        """Write the rows of a part, and return a part for each item with a suppressed row.

        Raises:
            RowSuppressed: if there is one item, and a row of it was suppressed.
        """
        ours, effects = await until_available(self.availability, self._attempt, part)
        if len(ours) < len(part.items):
            kept = {item.delivery.entry for item in ours}
            written.lost += (item for item in part.items if item.delivery.entry not in kept)
        suppressed: list[Item] = []
        counts = Counter(effects)
        if Effect.SUPPRESSED in counts:
            divided = list(with_effects(ours, effects))
            suppressed = [item for item, own in divided if Effect.SUPPRESSED in own]
            divided = [(item, own) for item, own in divided if Effect.SUPPRESSED not in own]
            ours, effects = [item for item, _ in divided], [effect for _, own in divided for effect in own]
            # The other rows of such an item are stored. If they are found unchanged later, this statement changed them.
            self._note_uncertain(item for item in suppressed if len(item.rows) > 1)
            if len(part.items) == 1:
                raise RowSuppressed
            counts = Counter(effects)
        written.stored += ours
        written.effects += self._reported(ours, effects) if self._uncertain else effects
        written.fresh = fresh_item(ours, effects) or written.fresh
        self._limit = min(self._most, 2 * self._limit)
        now = self._now()
        if ours:
            self._metrics.last_success.set(now)
        for effect, count in counts.items():
            self._metrics.orders[_OUTCOME[effect]].inc(count)
            self.stored += count if _OUTCOME[effect] == "stored" else 0
        if ahead := sum([row.is_ahead for item in ours for row in item.rows]):
            self._metrics.versions_ahead.inc(ahead)
        if skipped := sum([not item.rows for item in ours]):
            self._metrics.orders["skipped"].inc(skipped)
        self._metrics.order_latency.observe_all([max(0.0, now - item.delivery.enqueued_at) for item in ours])
        return [StatementPart([item], part.locks) for item in suppressed]

    async def _attempt(self, part: StatementPart) -> tuple[list[Item], list[Effect]]:
        """Execute one statement with the items that are still held. Other processes may have claimed some since the last attempt."""
        await self._heartbeats.confirm()
        ours = self._held.still_held(part.items)
        rows = [row for item in ours for row in item.rows]
        if not rows:
            return ours, []
        started = time.monotonic()
        try:
            with self._held.traces.storing(ours, len(rows)):
                effects = await locked_rows.upsert(self._store, rows, part.locks)
        except StoreUnavailable as error:
            if isinstance(error, StoreLocked):
                raise  # certainly not executed
            self._note_uncertain(ours)
            self._interrupted += isinstance(error, StoreInterrupted)
            is_too_much = isinstance(error, StoreInterrupted) and self._interrupted >= _MOST_INTERRUPTED
            if not (is_too_much or isinstance(error, StoreTooSlow)):
                raise
            if len(ours) == 1:
                # All others wait for it, so that the log must name the order.
                raise StoreUnavailable(f"order {ours[0].delivery.order_id}, alone: {error}") from error
            raise _TooMuchAtOnce from error
        self._interrupted = 0
        self._metrics.store.observe(time.monotonic() - started)
        self._metrics.store_rows.observe(len(rows))
        return ours, effects

    def _note_uncertain(self, items: Iterable[Item]) -> None:
        """Note that rows of these items may be stored although no result was reported."""
        if entries := {item.delivery.entry for item in items}:
            held = {delivery.entry for delivery in self._held.deliveries()}
            self._uncertain = held & (self._uncertain | entries)

    def _reported(self, ours: Sequence[Item], effects: Sequence[Effect]) -> list[Effect]:
        """The effects, with uncertain ones as changes, because their first statement may have changed the row."""
        uncertain = [item.delivery.entry in self._uncertain for item in ours for _ in item.rows]
        self._uncertain -= {item.delivery.entry for item in ours}
        return [
            Effect.CHANGED if is_uncertain and effect is Effect.UNCHANGED else effect
            for effect, is_uncertain in zip(effects, uncertain, strict=True)
        ]
