"""Takes the account of accepted orders: where each of them is now, and whether its row is right.

    accepted IDs ──▶ ledger ◀── stream, retry set, dead letters (Redis) ◀── orders, erased orders (PostgreSQL)

The ledger is a database of its own in a temporary file, so that millions of orders take no more memory than a page of them.

It may be taken while workers run. Places are read in the direction in which orders move, so that one that moves is met
again; what is found nowhere, or with a wrong row, is looked for again, several times, before the account says so. Nothing is
changed anywhere: dying here leaves no trace.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from itertools import islice
from typing import Self

from ingest.domain.comparison import StoredOrder, differences
from ingest.domain.delivery import DeadReason
from ingest.domain.errors import UserError
from ingest.domain.order import parse_order_id
from ingest.domain.reconciliation import MOST_NAMED, Listed, ReconciliationReport
from ingest.queue.connection import control_client
from ingest.queue.scanner import Location, QueueScanner
from ingest.settings import Settings
from ingest.store.rows import Rows

__all__ = ["Expected", "Listed", "ReconciliationReport", "Service", "reconcile"]

_CHUNK = 1000
_ASK_AT_ONCE = 50
_LOOKS = 4
_BETWEEN_LOOKS = 0.2

Expected = bytes | DeadReason
"""What should have become of an order: the document that its row holds, or the reason of its dead letter."""


class LedgerFull(UserError):
    """The ledger cannot be written."""


Ids = Iterable[str] | AsyncIterable[str]
_Ask = Callable[[str], Awaitable[Expected | None]]


@dataclass(frozen=True, slots=True)
class Service:
    """Where the orders are: one queue and its group, and one database."""

    redis_url: str = field(repr=False)
    postgres_dsn: str = field(repr=False)
    stream: str = "orders"
    group: str = "ingest"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The service with these settings."""
        return cls(
            settings.redis_url.get_secret_value(),
            settings.postgres_dsn.get_secret_value(),
            settings.stream,
            settings.group,
        )


async def reconcile(
    accepted: Ids,
    service: Service,
    *,
    unconfirmed: Ids = (),
    expected: Mapping[str, Expected] | _Ask | None = None,
    partial: bool = False,
    on_lost: Callable[[str], None] | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ReconciliationReport:
    """Tell where each accepted order is.

    Args:
        accepted: IDs that `enqueue` has returned for; one may come several times. Read to its end before the first look.
        service: where to look.
        unconfirmed: IDs whose announcement failed or was cut off: they may have arrived, and need not.
        expected: what should have become of an order, by its ID or as a function to ask; None where that is unknown.
            An order that is still in the queue is not compared.
        partial: `accepted` is only a part of what was ever accepted, so that others are no strangers.
        on_lost: told of every order that is lost, by its ID and in their order, once all looks are done.
        on_progress: told how many of the orders have been looked for so far, and how many there are.

    Raises:
        InvalidOrderId: among the IDs is one that cannot have been accepted.
        Unavailable: Redis or PostgreSQL cannot be used right now.
        UserError: one of them refuses, or there is no room for the ledger.
    """
    with _room_for_a_ledger(), closing(_Ledger()) as ledger:
        for ids, claim in ((accepted, _Claim.ACCEPTED), (unconfirmed, _Claim.UNCONFIRMED)):
            async for chunk in _chunks(ids):
                ledger.enter([parse_order_id(order_id) for order_id in chunk], claim)
        async with control_client(service.redis_url) as client, Rows.open(service.postgres_dsn) as rows:
            scanner = QueueScanner(client, service.stream, service.group)
            inspection = _Inspection(ledger, scanner, rows, _ask(expected), on_progress)
            await inspection.look()
            for _ in range(_LOOKS - 1):
                if not ledger.forget_doubtful():
                    break
                await asyncio.sleep(_BETWEEN_LOOKS)
                await inspection.look()
            account = await inspection.account(partial=partial)
            if on_lost is not None:
                for order_id in ledger.lost():
                    on_lost(order_id)
            return account


@contextmanager
def _room_for_a_ledger() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise LedgerFull(
            f"the list is too long for memory, and cannot be kept in a temporary file: {error}."
            " Name a folder with room for it: SQLITE_TMPDIR=/path"
        ) from error


class _Claim(IntEnum):
    """How certain it is that an order was accepted."""

    NONE = 0
    UNCONFIRMED = 1
    ACCEPTED = 2


class _Seen(IntFlag):
    """What is known of an order."""

    QUEUED = 1
    DEAD = 2
    STORED = 4
    ERASED = 8
    COMPARED = 16
    WRONG = 32


_SOMEWHERE = _Seen.QUEUED | _Seen.DEAD | _Seen.STORED | _Seen.ERASED
_LOOKED_UP = _Seen.STORED | _Seen.ERASED | _Seen.COMPARED


class _Ledger:
    """One line for each order: how certainly it was accepted, what was seen of it, and what is wrong with it."""

    def __init__(self) -> None:
        # No name: a temporary file that SQLite removes. What fits its cache never gets there.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE ids (order_id TEXT PRIMARY KEY, claim INTEGER NOT NULL, seen INTEGER NOT NULL DEFAULT 0,"
            " reason TEXT NOT NULL DEFAULT '', problem TEXT NOT NULL DEFAULT '') WITHOUT ROWID"
        )

    def close(self) -> None:
        """Remove it."""
        self._database.close()

    def enter(self, ids: Iterable[str], claim: _Claim) -> None:
        """Enter orders; of several claims to one the most certain counts."""
        self._many(
            "INSERT INTO ids (order_id, claim) VALUES (?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET claim = max(claim, excluded.claim)",
            ((order_id, claim) for order_id in ids),
        )

    def see(self, ids: Iterable[str], what: _Seen) -> None:
        """Note what was seen of orders; one that was never entered is passed over."""
        self._many("UPDATE ids SET seen = seen | ? WHERE order_id = ?", ((what, order_id) for order_id in ids))

    def see_dead(self, letters: Iterable[tuple[str, str]]) -> None:
        """Note dead letters, ID and reason; an order that was never entered is entered as accepted by nobody."""
        self._many(
            "INSERT INTO ids (order_id, claim, seen, reason) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET seen = seen | excluded.seen, reason = excluded.reason",
            ((order_id, _Claim.NONE, _Seen.DEAD, reason) for order_id, reason in letters),
        )

    def judge(self, problems: Mapping[str, str]) -> None:
        """Note what is wrong with orders that were compared: nothing, where the text is empty."""
        self._many(
            "UPDATE ids SET seen = seen | ?, problem = ? WHERE order_id = ?",
            (
                (_Seen.COMPARED | _Seen.WRONG if problem else _Seen.COMPARED, problem, order_id)
                for order_id, problem in problems.items()
            ),
        )

    def forget_doubtful(self) -> int:
        """Forget what was seen of orders that seem lost or wrong, to look for them again; return how many these are."""
        forgotten = self._database.execute(
            "UPDATE ids SET seen = 0, problem = '' WHERE claim = ? AND seen = 0 OR claim > ? AND seen & ?",
            (_Claim.ACCEPTED, _Claim.NONE, _Seen.WRONG),
        )
        return forgotten.rowcount

    def to_look_up(self) -> Iterator[dict[str, tuple[int, str]]]:
        """Orders to be looked for in PostgreSQL, each with what was seen of it and its dead letter's reason, in pages."""
        after = ""
        while page := self._database.execute(
            "SELECT order_id, seen, reason FROM ids WHERE order_id > ? AND claim > ? AND seen & ? = 0"
            " ORDER BY order_id LIMIT ?",
            (after, _Claim.NONE, _LOOKED_UP, _CHUNK),
        ).fetchall():
            yield {order_id: (seen, reason) for order_id, seen, reason in page}
            after = page[-1][0]

    def lost(self) -> Iterator[str]:
        """All orders that were accepted and are nowhere, in their order, read in pages."""
        after = ""
        while page := self._database.execute(
            "SELECT order_id FROM ids WHERE order_id > ? AND claim = ? AND seen & ? = 0 ORDER BY order_id LIMIT ?",
            (after, _Claim.ACCEPTED, _SOMEWHERE, _CHUNK),
        ).fetchall():
            yield from (order_id for (order_id,) in page)
            after = page[-1][0]

    def __len__(self) -> int:
        """How many orders are to be looked for."""
        (count,) = self._database.execute("SELECT count(*) FROM ids WHERE claim > ?", (_Claim.NONE,)).fetchone()
        return int(count)

    def unexpected(self, ids: Sequence[str]) -> list[str]:
        """Those of the IDs that nobody accepted."""
        query = "SELECT 1 FROM ids WHERE order_id = ? AND claim > ?"
        return [name for name in ids if self._database.execute(query, (name, _Claim.NONE)).fetchone() is None]

    def tally(self, claim: _Claim) -> Counter[_Seen]:
        """How many orders of one claim have been seen in each way."""
        rows = self._database.execute("SELECT seen, count(*) FROM ids WHERE claim = ? GROUP BY seen", (claim,))
        return Counter({_Seen(seen): count for seen, count in rows})

    def listed(self, claims: tuple[_Claim, _Claim], mask: _Seen, seen: _Seen) -> Listed:
        """The orders between two claims of which, within the mask, exactly this was seen."""
        condition = (*claims, mask, seen)
        (count,) = self._database.execute(
            "SELECT count(*) FROM ids WHERE claim BETWEEN ? AND ? AND seen & ? = ?", condition
        ).fetchone()
        first = self._database.execute(
            "SELECT order_id || iif(problem = '', '', ' (' || problem || ')') FROM ids"
            " WHERE claim BETWEEN ? AND ? AND seen & ? = ? ORDER BY order_id LIMIT ?",
            (*condition, MOST_NAMED),
        )
        return Listed(count, tuple(name for (name,) in first))

    def _many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(statement, rows)
        self._database.execute("COMMIT")


class _Inspection:
    """Looks into every place, and enters in the ledger what is there."""

    def __init__(
        self,
        ledger: _Ledger,
        scanner: QueueScanner,
        rows: Rows,
        ask: _Ask | None,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._ledger = ledger
        self._scanner = scanner
        self._rows = rows
        self._ask = ask
        self._on_progress = on_progress
        self._entries: Counter[Location] = Counter()
        self._letters: Counter[str] = Counter()

    async def look(self) -> None:
        """Look once, in the direction in which orders move."""
        self._entries.clear()
        self._letters.clear()
        total, done = len(self._ledger), 0
        self._on_progress(done, total)
        async for page in self._scanner.queued():
            self._entries.update(sighting.place for sighting in page)
            self._ledger.see((sighting.order_id for sighting in page if sighting.order_id), _Seen.QUEUED)
        async for page in self._scanner.dead():
            self._letters.update(sighting.reason for sighting in page)
            self._ledger.see_dead((sighting.order_id, sighting.reason) for sighting in page if sighting.order_id)
        for known in self._ledger.to_look_up():
            await self._look_up(known)
            done += len(known)
            self._on_progress(done, total)

    async def _look_up(self, known: Mapping[str, tuple[int, str]]) -> None:
        ids = list(known)
        rows = await self._rows.content(ids) if self._ask else dict.fromkeys(await self._rows.present(ids))
        self._ledger.see(rows, _Seen.STORED)
        self._ledger.see(await self._rows.erased([name for name in ids if name not in rows]), _Seen.ERASED)
        if self._ask is None:
            return
        # While it is queued, a newer version may be on its way.
        ended = [
            name for name in ids if (name in rows or known[name][0] & _Seen.DEAD) and not known[name][0] & _Seen.QUEUED
        ]
        for start in range(0, len(ended), _ASK_AT_ONCE):
            some = ended[start : start + _ASK_AT_ONCE]
            wanted = zip(some, await asyncio.gather(*map(self._ask, some)), strict=True)
            self._ledger.judge(
                {name: _problem(what, rows.get(name), known[name][1]) for name, what in wanted if what is not None}
            )

    async def account(self, *, partial: bool) -> ReconciliationReport:
        """What the ledger says."""
        ledger, certain = self._ledger, self._ledger.tally(_Claim.ACCEPTED)
        uncertain = ledger.tally(_Claim.UNCONFIRMED)
        in_both = _Seen.STORED | _Seen.DEAD

        def having(mask: _Seen, seen: _Seen) -> int:
            return sum(count for what, count in certain.items() if what & mask == seen)

        return ReconciliationReport(
            accepted=certain.total(),
            stored=having(in_both, _Seen.STORED),
            dead=having(in_both, _Seen.DEAD),
            both=having(in_both, in_both),
            erased=having(in_both | _Seen.ERASED, _Seen.ERASED),
            under_way=having(_SOMEWHERE, _Seen.QUEUED),
            lost=ledger.listed((_Claim.ACCEPTED, _Claim.ACCEPTED), _SOMEWHERE, _Seen(0)),
            unconfirmed=uncertain.total(),
            arrived=sum(count for what, count in uncertain.items() if what & _SOMEWHERE),
            waiting=self._entries[Location.WAITING],
            pending=self._entries[Location.PENDING],
            retrying=self._entries[Location.RETRYING],
            dead_letters=dict(self._letters),
            compared=sum(count for what, count in (certain + uncertain).items() if what & _Seen.COMPARED),
            wrong=ledger.listed((_Claim.UNCONFIRMED, _Claim.ACCEPTED), _Seen.WRONG, _Seen.WRONG),
            unexpected=Listed() if partial else await self._unexpected(),
        )

    async def _unexpected(self) -> Listed:
        count, names = 0, list[str]()
        async for page in self._rows.all_ids():
            unexpected = self._ledger.unexpected(page)
            self._ledger.see(unexpected, _Seen.STORED)
            count += len(unexpected)
            names += unexpected[: MOST_NAMED - len(names)]
        # Those without a row.
        dead = self._ledger.listed((_Claim.NONE, _Claim.NONE), _Seen.STORED, _Seen(0))
        return Listed(count + dead.count, (*names, *dead.examples)[:MOST_NAMED])


def _problem(wanted: Expected, row: StoredOrder | None, reason: str) -> str:
    """What is wrong with an order that is stored, or dead for a reason, or both; empty if nothing is."""
    if isinstance(wanted, bytes):
        return f"dead: {reason}" if row is None else ", ".join(differences(row, wanted))
    if row is not None:
        return f"stored, should be dead: {wanted}"
    return "" if reason == wanted else f"dead: {reason}, should be: {wanted}"


def _ask(expected: Mapping[str, Expected] | _Ask | None) -> _Ask | None:
    if not isinstance(expected, Mapping):
        return expected

    async def look_up(order_id: str) -> Expected | None:
        return expected.get(order_id)

    return look_up


async def _chunks(ids: Ids) -> AsyncIterator[list[str]]:
    if isinstance(ids, AsyncIterable):
        chunk: list[str] = []
        async for order_id in ids:
            chunk.append(order_id)
            if len(chunk) == _CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
        return
    rest = iter(ids)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
