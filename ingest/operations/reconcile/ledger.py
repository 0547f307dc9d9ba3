"""The ledger of a reconciliation, which records the findings for each order.

It is a database in a temporary file, so that millions of orders take no more memory than a page of them. If the process dies, the
operating system removes the file.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum, IntFlag
from typing import Any, Self

from ingest.domain.errors import UserError
from ingest.domain.orders.reconciliation import MAX_EXAMPLES, ListedOrders

_PAGE = 1000


class LedgerFull(UserError):
    """The ledger cannot be written."""


class LedgerClaim(IntEnum):
    """The certainty that an order was accepted."""

    NONE = 0
    UNCONFIRMED = 1
    ACCEPTED = 2


class Seen(IntFlag):
    """Locations and comparisons recorded for an order."""

    QUEUED = 1
    DEAD = 2
    STORED = 4
    ERASED = 8
    COMPARED = 16
    WRONG = 32
    # In a reconciliation with the shop's list.
    OUTDATED = 64
    TOTAL_DIFFERS = 128
    UNEXPECTED = 256
    LISTED_TOTAL_DIFFERS = 512
    NOT_COMPARED = 1024


SOMEWHERE = Seen.QUEUED | Seen.DEAD | Seen.STORED | Seen.ERASED
_TABLE = """
CREATE TABLE ids (
    order_id TEXT PRIMARY KEY, claim INTEGER NOT NULL, seen INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
    problem TEXT NOT NULL DEFAULT '', listed_at INTEGER, listed_total TEXT, is_skipped INTEGER, stored_at INTEGER, stored_total TEXT,
    total_difference TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID
"""
_LOOKED_UP = Seen.STORED | Seen.ERASED | Seen.COMPARED


class Ledger:
    """One row for each order with its claim, the locations where it was seen, and its problem. A list adds its times and totals."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[Self]:
        """Open an empty ledger, which is removed at the end.

        Raises:
            LedgerFull: the disk space does not suffice for its file.
        """
        try:
            # An empty name makes a temporary file that SQLite removes. It is not written to while the data fits SQLite's cache.
            with closing(sqlite3.connect("", isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode = OFF")
                database.execute(_TABLE)
                yield cls(database)
        except sqlite3.OperationalError as error:
            raise LedgerFull(
                f"the list is too long for memory, and cannot be written to a temporary file: {error}."
                " Set SQLITE_TMPDIR to a folder with enough space"
            ) from error

    def add(self, ids: Iterable[str], claim: LedgerClaim) -> None:
        """Add orders. Of several claims to one order, the most certain counts."""
        self._execute_many(
            "INSERT INTO ids (order_id, claim) VALUES (?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET claim = max(claim, excluded.claim)",
            ((order_id, claim) for order_id in ids),
        )

    def mark(self, ids: Iterable[str], seen: Seen) -> None:
        """Record where orders were seen. Orders that are not in the ledger are ignored."""
        self._execute_many("UPDATE ids SET seen = seen | ? WHERE order_id = ?", ((seen, order_id) for order_id in ids))

    def mark_dead(self, dead_letters: Iterable[tuple[str, str]]) -> None:
        """Record dead letters by order ID and reason. An order that is not in the ledger is added without a claim."""
        self._execute_many(
            "INSERT INTO ids (order_id, claim, seen, reason) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET seen = seen | excluded.seen, reason = excluded.reason",
            ((order_id, LedgerClaim.NONE, Seen.DEAD, reason) for order_id, reason in dead_letters),
        )

    def record_comparison(self, problems: Mapping[str, str]) -> None:
        """Record the problems of compared orders. An empty text means that the order is correct."""
        self._execute_many(
            "UPDATE ids SET seen = seen | ?, problem = ? WHERE order_id = ?",
            (
                (Seen.COMPARED | Seen.WRONG if problem else Seen.COMPARED, problem, order_id)
                for order_id, problem in problems.items()
            ),
        )

    def reset_findings(self) -> int:
        """Reset orders that seem lost or wrong, to check them again. Returns their number."""
        reset = self._database.execute(
            "UPDATE ids SET seen = 0, problem = '' WHERE claim = ? AND seen = 0 OR claim > ? AND seen & ?",
            (LedgerClaim.ACCEPTED, LedgerClaim.NONE, Seen.WRONG),
        )
        return reset.rowcount

    def to_look_up(self) -> Iterator[dict[str, tuple[int, str]]]:
        """Return orders to look up in PostgreSQL, in pages, each with its `Seen` flags and its dead letter's reason."""
        for page in self._pages("seen, reason", f"claim > {LedgerClaim.NONE:d} AND seen & {_LOOKED_UP:d} = 0"):
            yield {order_id: (seen, reason) for order_id, seen, reason in page}

    def lost(self) -> Iterator[str]:
        """Return all accepted orders without a location, sorted."""
        for page in self._pages("1", f"claim = {LedgerClaim.ACCEPTED:d} AND seen & {SOMEWHERE:d} = 0"):
            yield from (order_id for order_id, _ in page)

    def __len__(self) -> int:
        """Count the orders to check."""
        return self._counted(f"claim > {LedgerClaim.NONE:d}")

    def unexpected(self, ids: Sequence[str]) -> list[str]:
        """Return the IDs of this list that are not in the ledger or have no claim."""
        query = "SELECT 1 FROM ids WHERE order_id = ? AND claim > ?"
        return [name for name in ids if self._database.execute(query, (name, LedgerClaim.NONE)).fetchone() is None]

    def tally(self, claim: LedgerClaim) -> Counter[Seen]:
        """Count the orders with this claim by their `Seen` flags."""
        rows = self._database.execute("SELECT seen, count(*) FROM ids WHERE claim = ? GROUP BY seen", (claim,))
        return Counter({Seen(seen): count for seen, count in rows})

    def listed(self, claims: tuple[LedgerClaim, LedgerClaim], mask: Seen, seen: Seen) -> ListedOrders:
        """Return the orders between two claims whose flags within the mask equal `seen`."""
        condition = f"claim BETWEEN {claims[0]:d} AND {claims[1]:d} AND seen & {mask:d} = {seen:d}"
        first = self._database.execute(
            "SELECT order_id || iif(problem = '', '', ' (' || problem || ')') FROM ids"  # noqa: S608  our own condition
            f" WHERE {condition} ORDER BY order_id LIMIT {MAX_EXAMPLES}"
        )
        return ListedOrders(self._counted(condition), tuple(name for (name,) in first))

    def _counted(self, condition: str) -> int:
        [[count]] = self._database.execute(f"SELECT count(*) FROM ids WHERE {condition}")  # noqa: S608  our own condition
        return int(count)

    def _pages(self, columns: str, condition: str) -> Iterator[list[Any]]:
        """Return the ID and other columns of orders, sorted by ID and read in pages."""
        after = ""
        while page := self._database.execute(
            f"SELECT order_id, {columns} FROM ids WHERE order_id > ? AND {condition} ORDER BY order_id LIMIT {_PAGE}",  # noqa: S608  our own condition
            (after,),
        ).fetchall():
            yield page
            after = page[-1][0]

    def _execute_many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(statement, rows)
        self._database.execute("COMMIT")
