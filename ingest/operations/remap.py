"""Makes orders of stored documents again, with the mapping and the transform of today, without asking the external API.

It goes through the rows in the order of their IDs, a page at a time. It may run while workers do: what they store meanwhile is newer,
and stays. When the process dies here, the pages before are done, and doing them again changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from ingest.domain.deliveries.delivery import DeadReason, Effect
from ingest.domain.errors import RowsRefused, RowSuppressed, StoreLocked, TransformFailed
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import InvalidDocument, document_id
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import StorableOrder
from ingest.store.orders.documents import Documents, DocumentSelection, Remapped, StoredDocument

__all__ = ["MAX_EXAMPLES", "DocumentSelection", "Failure", "RemapReport", "remap"]

MAX_EXAMPLES = 20
# Bytes and rows that are sent, or decoded, at once.
_PORTION = 4 * 1024 * 1024
_MOST = 1_000
_UNNAMED = "the document does not say of which order it is, and the transform returns orders with other IDs"


class Decoder(Protocol):
    """What makes orders of documents, as a worker does."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[StorableOrder, ...]:
        """The orders in a document."""


_Some = TypeVar("_Some")
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class _Unlocked(Protocol):
    """Calls a method of `Documents`, and again while another transaction has locked something."""

    async def __call__(self, call: Callable[[_Argument], Awaitable[_Result]], given: _Argument, /) -> _Result:
        """Its result."""


Identify = Callable[[bytes], str | None]
"""Tells of which announced order a document is; None if it does not say."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that stays as it is, since nothing can be made of its document."""

    order_id: str
    reason: str
    error: str


@dataclass(slots=True)
class RemapReport:
    """What has been done so far; in a dry run, what would be done.

    Attributes:
        examined: rows with a document.
        changed: rows that were replaced.
        unchanged: rows that are as they would be made today.
        inserted: orders that a document had not yielded before.
        skipped: rows whose document yields no such order today; they stay.
        newer: rows that were stored again meanwhile.
        failed: rows whose document cannot be used today; they stay.
        failures: the first of them.
        last: the last order ID that is done; a run can be resumed after it.
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

    def as_dict(self) -> dict[str, Any]:
        """The report for a script."""
        return asdict(self)

    def add_failure(self, failure: Failure) -> None:
        """Count a row that cannot be made again."""
        self.failed += 1
        if len(self.failures) < MAX_EXAMPLES:
            self.failures.append(failure)

    def add(self, outcomes: Sequence[Remapped | None]) -> None:
        """Count rows; None for one that is gone, which somebody has erased."""
        self.changed += outcomes.count(Remapped.CHANGED)
        self.unchanged += outcomes.count(Remapped.UNCHANGED)
        self.newer += outcomes.count(Remapped.NEWER) + outcomes.count(None)


async def remap(
    dsn: str,
    decoder: Decoder,
    selection: DocumentSelection,
    report: RemapReport,
    *,
    identify: Identify = document_id,
    dry_run: bool = False,
    on_progress: Callable[[int, int | None], None] = lambda _done, _total: None,
    on_locked: Callable[[str], None] = lambda _after: None,
) -> None:
    """Make the selected orders again, those after `report.last` if it is set.

    Args:
        dsn: of the database.
        decoder: makes orders of documents.
        selection: which orders.
        report: counts what is done; it is right whenever this ends.
        identify: tells of which announced order a document is.
        dry_run: change nothing.
        on_progress: called with how many rows were examined, and how many there are, if that is known.
        on_locked: called once for each wait for a lock of another transaction, with the last order ID that is done, or "".

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    async with Documents.open(dsn, selection) as documents:
        total = await documents.count(report.last or "")
        waiting = partial(_unlocked, lambda: on_locked(report.last or ""))
        run = _Run(documents, decoder, identify, report, waiting, dry_run=dry_run)
        while page := await waiting(documents.page, report.last or ""):
            # PostgreSQL compresses documents: those of a page may be large together.
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
        unlocked: "_Unlocked",
        *,
        dry_run: bool,
    ) -> None:
        self._documents = documents
        self._decoder = decoder
        self._identify = identify
        self._report = report
        self._unlocked = unlocked
        self._dry_run = dry_run
        # Each part of a split order yields the new ones, perhaps pages later, and a dry run does not store them.
        self._would_be_new: set[str] = set()

    async def remap_page(self, page: Sequence[StoredDocument]) -> None:
        """Make the orders of a page again; only then is it counted as done."""
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
        await self._replace(own)
        # What was erased meanwhile does not come back under another ID.
        present = await self._documents.present([order_id for order_id, rows in others.items() if rows])
        newest: dict[str, OrderRow] = {}
        for row in (row for order_id in present for row in others[order_id]):
            # Each part of a split order yields all the others.
            if row.order_id not in newest or newest[row.order_id].age < row.age:
                newest[row.order_id] = row
        for portion in _portions(list(newest.values()), _size_of):
            await self._insert(portion)
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
            # This row may be a part itself, and the order of its ID one that never was.
            return Failure(stored.order_id, DeadReason.TRANSFORM_FAILED.value, _UNNAMED)
        document = stored.document.decode()
        return [
            OrderRow.of(order, stored.fetched_at, stored.attempts, stored.enqueued_at, document) for order in orders
        ]

    async def _replace(self, rows: Sequence[OrderRow]) -> None:
        """Replace rows together, or one by one to find those that PostgreSQL refuses."""
        if not rows:
            return
        replace = self._documents.compare if self._dry_run else self._documents.replace
        try:
            outcomes = await self._unlocked(replace, rows)
        except RowsRefused as error:
            if len(rows) == 1:
                self._report.add_failure(Failure(rows[0].order_id, DeadReason.UNSTORABLE.value, str(error)))
                return
            for row in rows:
                await self._replace([row])
            return
        self._report.add([outcomes.get(row.order_id) for row in rows])
        self._add_suppressed(row for row in rows if outcomes.get(row.order_id) is Remapped.SUPPRESSED)

    async def _insert(self, rows: Sequence[OrderRow]) -> None:
        if not rows:
            return
        try:
            if self._dry_run:
                there = await self._unlocked(self._documents.compare, rows)
                self._would_be_new |= {row.order_id for row in rows} - there.keys()
                self._report.inserted = len(self._would_be_new)
            else:
                effects = await self._unlocked(self._documents.insert, rows)
                self._report.inserted += effects.count(Effect.INSERTED)
                of_each = zip(rows, effects, strict=True)
                self._add_suppressed(row for row, effect in of_each if effect is Effect.SUPPRESSED)
        except RowsRefused as error:
            if len(rows) == 1:
                self._report.add_failure(Failure(rows[0].order_id, DeadReason.UNSTORABLE.value, str(error)))
                return
            for row in rows:
                await self._insert([row])

    def _add_suppressed(self, rows: Iterable[OrderRow]) -> None:
        for order_id in dict.fromkeys(row.order_id for row in rows):
            self._report.add_failure(Failure(order_id, DeadReason.UNSTORABLE.value, str(RowSuppressed())))


async def _unlocked(
    on_locked: Callable[[], None], call: Callable[[_Argument], Awaitable[_Result]], given: _Argument
) -> _Result:
    """Call until no other transaction has locked a row or the table; each call waits for some seconds."""
    is_locked = False
    while True:
        try:
            return await call(given)
        except StoreLocked:
            if not is_locked:
                on_locked()
            is_locked = True


def _portions(all_of_them: Sequence[_Some], size_of: Callable[[_Some], int]) -> Iterator[Sequence[_Some]]:
    """Split them where they would have more than `_PORTION` bytes together, or more than `_MOST` are in one."""
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
