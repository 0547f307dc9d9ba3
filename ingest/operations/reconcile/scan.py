"""Reads the locations of orders in Redis and PostgreSQL, and records them in the ledger."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.orders.comparison import StoredOrder, differences
from ingest.operations.backends import Backends
from ingest.operations.reconcile.ledger import Ledger, Seen
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.scanner import Location, QueueScanner
from ingest.queue.redis.connection import control_client
from ingest.store.orders.rows import Rows

_ASKED_AT_ONCE = 50
_LOOKS = 4
_BETWEEN_LOOKS = 0.2

Expected = bytes | DeadReason
"""The expected result of an order: the document of its row, or the reason of its dead letter."""

Ask = Callable[[str], Awaitable[Expected | None]]
"""Returns the expected result of an order, or None if it is unknown."""


LookUp = Callable[[Mapping[str, tuple[int, str]]], Awaitable[None]]
"""Looks up orders of the ledger in PostgreSQL, and records the results there. Each comes with its flags and its dead letter's reason."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places where an order can be.

    Attributes:
        scanner: of the queue.
        rows: the stored orders.
    """

    scanner: QueueScanner
    rows: Rows


@asynccontextmanager
async def open_places(backends: Backends) -> AsyncIterator[Places]:
    """Open the queue and the stored orders of a source."""
    async with (
        control_client(backends.redis_url) as client,
        Rows.open(backends.postgres_dsn, backends.source) as rows,
    ):
        yield Places(QueueScanner(client, layout_reader(client, backends.stream), backends.group), rows)


@dataclass(frozen=True, slots=True)
class Scan:
    """Scans every location in the direction in which orders move, and records the results in the ledger.

    Attributes:
        ledger: with the orders.
        scanner: of the queue.
        look_up: looks up orders in PostgreSQL.
        on_progress: called with the number of orders that were looked up so far and the total.
        entries: entries of the queue by location, as of the last scan.
        dead_letters: dead letters by reason, as of the last scan.
    """

    ledger: Ledger
    scanner: QueueScanner
    look_up: LookUp
    on_progress: Callable[[int, int], None]
    entries: Counter[Location] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)

    async def repeatedly(self) -> None:
        """Scan once, and again while an order seems lost or wrong."""
        await self.look()
        for _ in range(_LOOKS - 1):
            if not self.ledger.reset_findings():
                return
            await asyncio.sleep(_BETWEEN_LOOKS)
            await self.look()

    async def look(self) -> None:
        """Scan the queue, then the dead letters, then PostgreSQL."""
        self.entries.clear()
        self.dead_letters.clear()
        total, done = len(self.ledger), 0
        self.on_progress(done, total)
        async for page in self.scanner.queued():
            self.entries.update(found.place for found in page)
            self.ledger.mark((found.order_id for found in page if found.order_id), Seen.QUEUED)
            self.on_progress(done, total)
        async for page in self.scanner.dead():
            self.dead_letters.update(found.reason for found in page)
            self.ledger.mark_dead((found.order_id, found.reason) for found in page if found.order_id)
            self.on_progress(done, total)
        for known in self.ledger.to_look_up():
            await self.look_up(known)
            done += len(known)
            self.on_progress(done, total)


async def look_up(ledger: Ledger, rows: Rows, ask: Ask | None, known: Mapping[str, tuple[int, str]]) -> None:
    """Find the rows of orders, and compare their content if the expected results are known. See `LookUp`."""
    ids = list(known)
    stored = await rows.content(ids) if ask else dict.fromkeys(await rows.present(ids))
    ledger.mark(stored, Seen.STORED)
    ledger.mark(await rows.erased([name for name in ids if name not in stored]), Seen.ERASED)
    if ask is None:
        return
    # A queued order is not compared, because a newer version of it may arrive.
    ended = [
        name for name, (seen, _) in known.items() if (name in stored or seen & Seen.DEAD) and not seen & Seen.QUEUED
    ]
    for start in range(0, len(ended), _ASKED_AT_ONCE):
        some = ended[start : start + _ASKED_AT_ONCE]
        results = zip(some, await asyncio.gather(*map(ask, some)), strict=True)
        ledger.record_comparison(
            {
                name: _problem(expected, stored.get(name), known[name][1])
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
