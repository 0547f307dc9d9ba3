"""Writes rows with as few statements as they allow: halves what is too slow, and finds which rows are refused.

A row of a lease that was lost is never written. When the process dies here, rows are stored whose entries are still pending; they
come again and change nothing.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from ingest.domain.delivery import Delivery, Effect, OrderRow
from ingest.domain.errors import RowsRefused, StoreTooSlow
from ingest.flow.lease import Leases
from ingest.flow.patience import until_available
from ingest.flow.ports import Store
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_log = get_logger("writing")

# Documents in one statement: PostgreSQL takes some 50 ms for each MB, and encoding one blocks the event loop for some 20 ms.
_STATEMENT_BYTES = 8 * 1024 * 1024
# Rows refused one by one, and none taken, after which a search is given up for now: it is rather the table.
_MOST_REFUSED = 4
_OUTCOME = {
    Effect.INSERTED: "stored",
    Effect.CHANGED: "stored",
    Effect.UNCHANGED: "unchanged",
    Effect.ERASED: "erased",
}


class Item(msgspec.Struct, frozen=True, gc=False):
    """A row to be stored.

    Attributes:
        size: bytes of its document, for which room is taken.
    """

    delivery: Delivery
    row: OrderRow
    size: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that was refused alone."""

    item: Item
    error: RowsRefused


@dataclass(slots=True)
class Written:
    """What became of the rows of one call.

    Attributes:
        stored: committed.
        refused: each was refused alone.
        untried: nothing is known of them but that they, or others with them, were refused or too slow.
        lost: others have taken over the entry.
        fresh: one that was inserted or changed: the table takes rows.
    """

    stored: list[Item] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    untried: list[Item] = field(default_factory=list)
    lost: list[Item] = field(default_factory=list)
    fresh: Item | None = None


class _TooMuchAtOnce(Exception):
    """Several rows were not stored in time: fewer may be."""


class Writer:
    """Writes rows for one process, a statement at a time.

    Args:
        store: where to.
        leases: asked before each statement which rows are still ours.
        metrics: outcomes, latencies, statements.
        rows: most rows of a statement.
        now: wall clock in Unix seconds, for latencies.
    """

    def __init__(
        self, store: Store, leases: Leases, metrics: WorkerMetrics, rows: int, *, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._leases = leases
        self._metrics = metrics
        self._most = rows
        self._limit = rows
        self._now = now

    def fitting(self, items: Sequence[Item]) -> int:
        """How many of the items, from the first on, one statement takes: at least one."""
        size = 0
        for count, item in enumerate(items[: self._limit]):
            size += item.size
            if size > _STATEMENT_BYTES and count:
                return count
        return min(len(items), self._limit)

    async def write(self, items: Sequence[Item], *, to_the_end: bool = False) -> Written:
        """Write the rows; while PostgreSQL is unavailable, wait.

        A refused row is found by halving. Returns early, with rows untried, when rows are too slow together, and, unless
        `to_the_end`, when several are refused and none is taken.
        """
        written, suspects = Written(), 0
        parts = deque(self._split(items))
        while parts:
            part = parts.popleft()
            try:
                await self._write_part(part, written)
            except _TooMuchAtOnce:
                self._limit = max(1, len(part) // 2)
                _log.warning("batch_halved", rows=self._limit)
                parts.appendleft(part)
                break
            except RowsRefused as error:
                if len(part) > 1:
                    half = len(part) // 2
                    parts.extendleft((part[half:], part[:half]))
                    continue
                written.refused.append(Refusal(part[0], error))
                suspects += not error.is_certain
                if suspects >= _MOST_REFUSED and written.fresh is None and not to_the_end:
                    break
        written.untried = [item for part in parts for item in part]
        return written

    def _split(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        start = 0
        while start < len(items):
            count = self.fitting(items[start:] if start else items)
            yield list(items[start : start + count])
            start += count

    async def takes(self, stored: Item) -> bool:
        """Whether the table takes a row that it has taken before; it is not touched by that."""
        try:
            await until_available("postgres", self._store.upsert, [stored.row])
        except RowsRefused:
            return False
        return True

    async def _write_part(self, part: list[Item], written: Written) -> None:
        ours, effects = await until_available("postgres", self._attempt, part)
        if len(ours) < len(part):
            kept = {item.delivery.entry for item in ours}
            written.lost += (item for item in part if item.delivery.entry not in kept)
        written.stored += ours
        written.fresh = _fresh(ours, effects) or written.fresh
        self._limit = min(self._most, 2 * self._limit)
        now = self._now()
        for effect, count in Counter(effects).items():
            self._metrics.orders[_OUTCOME[effect]].inc(count)
        self._metrics.order_latency.observe_all([max(0.0, now - item.delivery.enqueued_at) for item in ours])

    async def _attempt(self, items: Sequence[Item]) -> tuple[list[Item], list[Effect]]:
        """One statement with those rows that are still ours: others may have taken some over since the last attempt."""
        await self._leases.confirm()
        ours = [item for item in items if self._leases.holds(item.delivery.entry)]
        if not ours:
            return [], []
        started = time.monotonic()
        try:
            effects = await self._store.upsert([item.row for item in ours])
        except StoreTooSlow as error:
            if len(ours) == 1:
                raise
            raise _TooMuchAtOnce from error
        self._metrics.store.observe(time.monotonic() - started)
        self._metrics.store_rows.observe(len(ours))
        return ours, effects


def _fresh(items: Iterable[Item], effects: Iterable[Effect]) -> Item | None:
    """An item whose row was inserted or changed: only that shows that the table takes rows, triggers and all."""
    new = (Effect.INSERTED, Effect.CHANGED)
    return next((item for item, effect in zip(items, effects, strict=True) if effect in new), None)
