"""Rebuilds orders from stored documents with the current mapping and transform, without requests to the external API.

Rows are processed page by page, in the order of their IDs or of their last change. Workers may run concurrently: rows that they store are newer and stay. If the
process dies here, the previous pages are done, and repeating them changes nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ingest.domain.deliveries.delivery import DeadReason, Effect
from ingest.domain.errors import RowsRefused, RowSuppressed, StoreLocked, TransformFailed
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import InvalidDocument, document_id
from ingest.domain.orders.order_filter import OrderPosition
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import StorableOrder
from ingest.operations.rebuilding.remap_report import Failure, RemapReport
from ingest.store.orders.documents import Documents, DocumentSelection, Remapped, StoredDocument

# Largest number of bytes and rows that are sent or decoded together.
_PORTION = 4 * 1024 * 1024
_MOST = 1_000
_UNNAMED = "the document does not identify its order, and the transform returns orders with other IDs"


class Decoder(Protocol):
    """Decodes documents to orders as a worker does."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[StorableOrder, ...]:
        """Return the orders in a document."""


Identify = Callable[[bytes], str | None]
"""Returns the ID of the announced order in a document, or None if it contains none."""

_Some = TypeVar("_Some")
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RemapStep:
    """A few hundred rows that are done.

    Attributes:
        position: of the last one.
        changed: the orders that were changed.
        total: rows of the whole run, if known.
    """

    position: OrderPosition
    changed: Sequence[str]
    total: int | None


async def remap_steps(
    dsn: str,
    source: str,
    decoder: Decoder,
    selection: DocumentSelection,
    report: RemapReport,
    *,
    identify: Identify = document_id,
    dry_run: bool = False,
    on_locked: Callable[[str], None] = lambda _after: None,
    after: OrderPosition | None = None,
) -> AsyncGenerator[RemapStep, None]:
    """Rebuild the selected orders, or those after a position, or after `report.last` if it is set. Yields each step.

    Args:
        dsn: DSN of the database.
        source: the name of the source of the orders.
        decoder: decodes documents to orders.
        selection: the orders to rebuild.
        report: updated with each step, and correct even after an error.
        identify: returns the ID of the announced order in a document.
        dry_run: whether to make no changes.
        on_locked: called once for each wait for another transaction's lock, with the last completed order ID or "".
        after: where a run is resumed.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    async with Documents.open(dsn, selection, source) as documents:
        position = after or OrderPosition(report.last or "")
        total = await documents.count(position)
        run = _Run(documents, decoder, identify, report, on_locked, dry_run=dry_run)
        while page := await run.unlocked(documents.page, position):
            # PostgreSQL compresses documents, so the documents of a page may be large together.
            for portion in _portions(page, lambda stored: len(stored.document)):
                changed = await run.remap_page(portion)
                position = portion[-1].position
                yield RemapStep(position, changed, total)


async def remap(
    dsn: str,
    source: str,
    decoder: Decoder,
    selection: DocumentSelection,
    report: RemapReport,
    *,
    identify: Identify = document_id,
    dry_run: bool = False,
    on_progress: Callable[[int, int | None], None] = lambda _done, _total: None,
    on_locked: Callable[[str], None] = lambda _after: None,
) -> None:
    """Rebuild the selected orders. See `remap_steps`. Progress is the number of rows examined, and the total if known."""
    steps = remap_steps(
        dsn, source, decoder, selection, report, identify=identify, dry_run=dry_run, on_locked=on_locked
    )
    async with aclosing(steps):
        async for step in steps:
            on_progress(report.examined, step.total)


class _Run:
    def __init__(
        self,
        documents: Documents,
        decoder: Decoder,
        identify: Identify,
        report: RemapReport,
        on_locked: Callable[[str], None],
        *,
        dry_run: bool,
    ) -> None:
        self._documents = documents
        self._decoder = decoder
        self._identify = identify
        self._report = report
        self._on_locked = on_locked
        self._dry_run = dry_run
        # Each part of a split order yields the new orders, perhaps pages later, and a dry run does not store them.
        self._would_be_new: set[str] = set()
        self._changed: list[str] = []

    async def remap_page(self, page: Sequence[StoredDocument]) -> list[str]:
        """Rebuild the orders of a page, count the page as completed, and return the orders that were changed."""
        self._changed = []
        made = await asyncio.gather(*(self._made(stored) for stored in page))
        own: list[OrderRow] = []
        others: dict[str, list[OrderRow]] = {}
        for stored, rows in zip(page, made, strict=True):
            if isinstance(rows, Failure):
                self._report.add_failure(rows)
                continue
            own_rows = [row for row in rows if row.order_id == stored.order_id]
            self._report.skipped += not own_rows
            own += own_rows
            others[stored.order_id] = [row for row in rows if row.order_id != stored.order_id]
        await self._store(self._replace, own)
        # An order erased during the run must not return under another ID.
        present = await self._documents.present([order_id for order_id, rows in others.items() if rows])
        newest: dict[str, OrderRow] = {}
        for row in (row for order_id in present for row in others[order_id]):
            # Each part of a split order yields all other parts.
            if row.order_id not in newest or newest[row.order_id].age < row.age:
                newest[row.order_id] = row
        for portion in _portions(list(newest.values()), _size_of):
            await self._store(self._insert, portion)
        self._report.examined += len(page)
        self._report.last = page[-1].order_id
        return self._changed

    async def _made(self, stored: StoredDocument) -> list[OrderRow] | Failure:
        announced = self._identify(stored.document)
        try:
            orders = await self._decoder.decode(stored.document, FetchRequest(announced or stored.order_id))
        except InvalidDocument as error:
            return Failure(stored.order_id, DeadReason.INVALID_ORDER.value, str(error))
        except TransformFailed as error:
            return Failure(stored.order_id, DeadReason.TRANSFORM_FAILED.value, str(error))
        if announced is None and any(order.id != stored.order_id for order in orders):
            # The row may itself be a part, whose ID is not the ID of an announced order.
            return Failure(stored.order_id, DeadReason.TRANSFORM_FAILED.value, _UNNAMED)
        document = stored.document.decode()
        return [
            OrderRow.of(order, stored.fetched_at, stored.attempts, stored.enqueued_at, document) for order in orders
        ]

    async def _replace(self, rows: Sequence[OrderRow]) -> None:
        replace = self._documents.compare if self._dry_run else self._documents.replace
        outcomes = await self.unlocked(replace, rows)
        changed = [row for row in rows if outcomes.get(row.order_id) is Remapped.CHANGED]
        if self._dry_run and changed:
            for order_id, differences in (await self.unlocked(self._documents.differences, changed)).items():
                self._report.fields.add(order_id, differences)
        self._changed += (row.order_id for row in changed)
        self._report.add([outcomes.get(row.order_id) for row in rows])
        self._add_suppressed(row for row in rows if outcomes.get(row.order_id) is Remapped.SUPPRESSED)

    async def _insert(self, rows: Sequence[OrderRow]) -> None:
        if self._dry_run:
            there = await self.unlocked(self._documents.compare, rows)
            self._would_be_new |= {row.order_id for row in rows} - there.keys()
            self._report.inserted = len(self._would_be_new)
            return
        effects = await self.unlocked(self._documents.insert, rows)
        self._report.inserted += effects.count(Effect.INSERTED)
        of_each = zip(rows, effects, strict=True)
        self._add_suppressed(row for row, effect in of_each if effect is Effect.SUPPRESSED)

    async def _store(self, store: Callable[[Sequence[OrderRow]], Awaitable[None]], rows: Sequence[OrderRow]) -> None:
        """Store rows together, or one by one to find the rows that PostgreSQL rejects."""
        if not rows:
            return
        try:
            await store(rows)
        except RowsRefused as error:
            if len(rows) == 1:
                self._report.add_failure(Failure(rows[0].order_id, DeadReason.UNSTORABLE.value, str(error)))
                return
            for row in rows:
                await self._store(store, [row])

    async def unlocked(self, call: Callable[[_Argument], Awaitable[_Result]], given: _Argument) -> _Result:
        """Repeat a call until no other transaction holds a lock. Each call waits for a few seconds."""
        is_locked = False
        while True:
            try:
                return await call(given)
            except StoreLocked:
                if not is_locked:
                    self._on_locked(self._report.last or "")
                is_locked = True

    def _add_suppressed(self, rows: Iterable[OrderRow]) -> None:
        for order_id in dict.fromkeys(row.order_id for row in rows):
            self._report.add_failure(Failure(order_id, DeadReason.UNSTORABLE.value, str(RowSuppressed())))


def _portions(all_of_them: Sequence[_Some], size_of: Callable[[_Some], int]) -> Iterator[Sequence[_Some]]:
    """Split items into portions of at most `_PORTION` bytes and `_MOST` items."""
    start = size = 0
    for index, each in enumerate(all_of_them):
        size += size_of(each)
        if index > start and (size > _PORTION or index - start == _MOST):
            yield all_of_them[start:index]
            start, size = index, size_of(each)
    if start < len(all_of_them):
        yield all_of_them[start:]


def _size_of(row: OrderRow) -> int:
    return len(row.lines) + len(row.attributes or "") + len(row.document or "")
