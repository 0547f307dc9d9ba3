"""Reads the locations of orders in Redis and PostgreSQL, and records them in the ledger."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.orders.comparison import StoredOrder, differences
from ingest.operations.reconcile.ledger import Ledger, Seen
from ingest.queue.operate.scanner import QueueScanner
from ingest.store.orders.rows import Rows

if TYPE_CHECKING:
    from ingest.queue.operate.scanner import Location

_ASKED_AT_ONCE = 50
_LOOKS = 4
_BETWEEN_LOOKS = 0.2

Expected = bytes | DeadReason
"""The expected result of an order: the document of its row, or the reason of its dead letter."""

Ask = Callable[[str], Awaitable[Expected | None]]
"""Returns the expected result of an order, or None if it is unknown."""


LookUp = Callable[[Mapping[str, tuple[int, str]]], Awaitable[None]]
"""Looks up orders of the ledger in PostgreSQL, and records the results there. Each comes with its flags and its dead letter's reason."""


class Scan:
    """Scans every location in the direction in which orders move, and records the results in the ledger.

    Attributes:
        entries: entries of the queue by location, as of the last scan.
        dead_letters: dead letters by reason, as of the last scan.
    """

    def __init__(
        self, ledger: Ledger, scanner: QueueScanner, look_up: LookUp, on_progress: Callable[[int, int], None]
    ) -> None:
        self.entries: Counter[Location] = Counter()
        self.dead_letters: Counter[str] = Counter()
        self._ledger = ledger
        self._scanner = scanner
        self._look_up = look_up
        self._on_progress = on_progress

    async def look(self) -> None:
        """Scan the queue, then the dead letters, then PostgreSQL."""
        self.entries.clear()
        self.dead_letters.clear()
        total, done = len(self._ledger), 0
        self._on_progress(done, total)
        async for page in self._scanner.queued():
            self.entries.update(found.place for found in page)
            self._ledger.mark((found.order_id for found in page if found.order_id), Seen.QUEUED)
            self._on_progress(done, total)
        async for page in self._scanner.dead():
            self.dead_letters.update(found.reason for found in page)
            self._ledger.mark_dead((found.order_id, found.reason) for found in page if found.order_id)
            self._on_progress(done, total)
        for known in self._ledger.to_look_up():
            await self._look_up(known)
            done += len(known)
            self._on_progress(done, total)


async def scan_repeatedly(ledger: Ledger, scan: Scan) -> None:
    """Scan once, and again while an order seems lost or wrong."""
    await scan.look()
    for _ in range(_LOOKS - 1):
        if not ledger.reset_findings():
            return
        await asyncio.sleep(_BETWEEN_LOOKS)
        await scan.look()


class RowLookUp:
    """Finds the rows of orders, and compares their content if the expected results are known."""

    def __init__(self, ledger: Ledger, rows: Rows, ask: Ask | None) -> None:
        self._ledger = ledger
        self._rows = rows
        self._ask = ask

    async def __call__(self, known: Mapping[str, tuple[int, str]]) -> None:
        """See `LookUp`."""
        ids = list(known)
        rows = await self._rows.content(ids) if self._ask else dict.fromkeys(await self._rows.present(ids))
        self._ledger.mark(rows, Seen.STORED)
        self._ledger.mark(await self._rows.erased([name for name in ids if name not in rows]), Seen.ERASED)
        if self._ask is not None:
            await self._compare(known, rows, self._ask)

    async def _compare(
        self, known: Mapping[str, tuple[int, str]], rows: Mapping[str, StoredOrder | None], ask: Ask
    ) -> None:
        # A queued order is not compared, because a newer version of it may arrive.
        ended = [
            name for name, (seen, _) in known.items() if (name in rows or seen & Seen.DEAD) and not seen & Seen.QUEUED
        ]
        for start in range(0, len(ended), _ASKED_AT_ONCE):
            some = ended[start : start + _ASKED_AT_ONCE]
            results = zip(some, await asyncio.gather(*map(ask, some)), strict=True)
            self._ledger.record_comparison(
                {
                    name: _problem(expected, rows.get(name), known[name][1])
                    for name, expected in results
                    if expected is not None
                }
            )


def _problem(expected: Expected, row: StoredOrder | None, reason: str) -> str:
    """Describe the problem of a stored or dead-lettered order. Empty if it is as expected."""
    if isinstance(expected, bytes):
        return f"dead: {reason}" if row is None else ", ".join(differences(row, expected))
    if row is not None:
        return f"stored, should be dead: {expected}"
    return "" if reason == expected else f"dead: {reason}, should be: {expected}"
