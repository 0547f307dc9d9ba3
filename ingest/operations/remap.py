"""Rebuilds orders from stored documents with the current mapping and transform, without requests to the external API.

Rows are processed page by page in the order of their IDs. Workers may run concurrently: rows that they store are newer and stay. If the
process dies here, the previous pages are done, and repeating them changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ingest.domain.deliveries.delivery import DeadReason, Effect
from ingest.domain.errors import RowsRefused, RowSuppressed, StoreLocked, TransformFailed
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import InvalidDocument, document_id
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import StorableOrder
from ingest.store.orders.documents import Documents, DocumentSelection, Remapped, StoredDocument

MAX_EXAMPLES = 20
# Largest number of bytes and rows that are sent or decoded together.
_PORTION = 4 * 1024 * 1024
_MOST = 1_000
_UNNAMED = "the document does not identify its order, and the transform returns orders with other IDs"


class Decoder(Protocol):
    """Decodes documents to orders as a worker does."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[StorableOrder, ...]:
        """Return the orders in a document."""


_Some = TypeVar("_Some")
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


Identify = Callable[[bytes], str | None]
"""Returns the ID of the announced order in a document, or None if it contains none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that stays unchanged because its document is unusable."""

    order_id: str
    reason: str
    error: str


@dataclass(slots=True)
class RemapReport:
    """The results so far. In a dry run, the changes that would be made.

    Attributes:
        examined: rows with a document.
        changed: rows that were replaced.
        unchanged: rows that are up to date.
        inserted: orders that a document yields for the first time.
        skipped: rows whose document no longer yields this order. They stay.
        newer: rows that were stored again during the run.
        failed: rows whose document is unusable. They stay.
        failures: the first failures.
        last: the last completed order ID, after which a run can be resumed.
    """

    examined: int = 0
    changed: int = 0
    unchanged: int = 0
    inserted: int = 0
    skipped: int = 0
    newer: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    last: str | None = None

    def add_failure(self, failure: Failure) -> None:
        """Count a row that cannot be rebuilt."""
        self.failed += 1
        if len(self.failures) < MAX_EXAMPLES:
            self.failures.append(failure)

    def add(self, outcomes: Sequence[Remapped | None]) -> None:
        """Count rows. None stands for a row that was erased during the run."""
        self.changed += outcomes.count(Remapped.CHANGED)
        self.unchanged += outcomes.count(Remapped.UNCHANGED)
        self.newer += outcomes.count(Remapped.NEWER) + outcomes.count(None)


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
    """Rebuild the selected orders, or those after `report.last` if it is set.

    Args:
        dsn: DSN of the database.
        source: the name of the source of the orders.
        decoder: decodes documents to orders.
        selection: the orders to rebuild.
        report: updated with each page, and correct even after an error.
        identify: returns the ID of the announced order in a document.
        dry_run: whether to make no changes.
        on_progress: called with the number of rows examined and the total, if known.
        on_locked: called once for each wait for another transaction's lock, with the last completed order ID or "".

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    async with Documents.open(dsn, selection, source) as documents:
        total = await documents.count(report.last or "")
        run = _Run(documents, decoder, identify, report, on_locked, dry_run=dry_run)
        while page := await run.unlocked(documents.page, report.last or ""):
            # PostgreSQL compresses documents, so the documents of a page may be large together.
            for portion in _portions(page, lambda stored: len(stored.document)):
                await run.remap_page(portion)
                on_progress(report.examined, total)


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

    async def remap_page(self, page: Sequence[StoredDocument]) -> None:
        """Rebuild the orders of a page, and then count the page as completed."""
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
