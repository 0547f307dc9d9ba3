"""The ledger of a reconciliation: what is known of each order, however many there are.

It is a database in a temporary file, so that millions of orders take no more memory than a page of them. When the process
dies, the operating system removes the file.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum, IntFlag

from ingest.domain.errors import UserError
from ingest.domain.orders.reconciliation import MAX_EXAMPLES, Listed

_PAGE = 1000


class LedgerFull(UserError):
    """The ledger cannot be written."""


class Claim(IntEnum):
    """How certain it is that an order was accepted."""

    NONE = 0
    UNCONFIRMED = 1
    ACCEPTED = 2


class Seen(IntFlag):
    """What is known of an order."""

    QUEUED = 1
    DEAD = 2
    STORED = 4
    ERASED = 8
    COMPARED = 16
    WRONG = 32


SOMEWHERE = Seen.QUEUED | Seen.DEAD | Seen.STORED | Seen.ERASED
_LOOKED_UP = Seen.STORED | Seen.ERASED | Seen.COMPARED


@contextmanager
def open_ledger() -> Iterator["Ledger"]:
    """An empty ledger, removed at the end.

    Raises:
        LedgerFull: if there is no room for its file.
    """
    try:
        with closing(Ledger()) as ledger:
            yield ledger
    except sqlite3.OperationalError as error:
        raise LedgerFull(
            f"the list is too long for memory, and cannot be kept in a temporary file: {error}."
            " Name a folder with room for it: SQLITE_TMPDIR=/path"
        ) from error


class Ledger:
    """One row for each order: how certainly it was accepted, what was seen of it, and what is wrong with it."""

    def __init__(self) -> None:
        # Without a name it is a temporary file that SQLite removes. Nothing is written to it while the data fits SQLite's cache.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE ids (order_id TEXT PRIMARY KEY, claim INTEGER NOT NULL, seen INTEGER NOT NULL DEFAULT 0,"
            " reason TEXT NOT NULL DEFAULT '', problem TEXT NOT NULL DEFAULT '') WITHOUT ROWID"
        )

    def close(self) -> None:
        """Remove it."""
        self._database.close()

    def add(self, ids: Iterable[str], claim: Claim) -> None:
        """Add orders; of several claims to one order the most certain counts."""
        self._execute_many(
            "INSERT INTO ids (order_id, claim) VALUES (?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET claim = max(claim, excluded.claim)",
            ((order_id, claim) for order_id in ids),
        )

    def mark(self, ids: Iterable[str], seen: Seen) -> None:
        """Record what was seen of orders; an order that is not in the ledger is ignored."""
        self._execute_many("UPDATE ids SET seen = seen | ? WHERE order_id = ?", ((seen, order_id) for order_id in ids))

    def mark_dead(self, dead_letters: Iterable[tuple[str, str]]) -> None:
        """Record dead letters by order ID and reason; an order that is not in the ledger is added as accepted by nobody."""
        self._execute_many(
            "INSERT INTO ids (order_id, claim, seen, reason) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET seen = seen | excluded.seen, reason = excluded.reason",
            ((order_id, Claim.NONE, Seen.DEAD, reason) for order_id, reason in dead_letters),
        )

    def record_comparison(self, problems: Mapping[str, str]) -> None:
        """Record what is wrong with orders that were compared: nothing where the text is empty."""
        self._execute_many(
            "UPDATE ids SET seen = seen | ?, problem = ? WHERE order_id = ?",
            (
                (Seen.COMPARED | Seen.WRONG if problem else Seen.COMPARED, problem, order_id)
                for order_id, problem in problems.items()
            ),
        )

    def reset_findings(self) -> int:
        """Discard what was seen of orders that seem lost or wrong, to look for them again; return how many there are."""
        reset = self._database.execute(
            "UPDATE ids SET seen = 0, problem = '' WHERE claim = ? AND seen = 0 OR claim > ? AND seen & ?",
            (Claim.ACCEPTED, Claim.NONE, Seen.WRONG),
        )
        return reset.rowcount

    def to_look_up(self) -> Iterator[dict[str, tuple[int, str]]]:
        """Orders to look up in PostgreSQL, each with what was seen of it and its dead letter's reason, in pages."""
        after = ""
        while page := self._database.execute(
            "SELECT order_id, seen, reason FROM ids WHERE order_id > ? AND claim > ? AND seen & ? = 0"
            " ORDER BY order_id LIMIT ?",
            (after, Claim.NONE, _LOOKED_UP, _PAGE),
        ).fetchall():
            yield {order_id: (seen, reason) for order_id, seen, reason in page}
            after = page[-1][0]

    def lost(self) -> Iterator[str]:
        """All orders that were accepted and are nowhere, sorted, read in pages."""
        after = ""
        while page := self._database.execute(
            "SELECT order_id FROM ids WHERE order_id > ? AND claim = ? AND seen & ? = 0 ORDER BY order_id LIMIT ?",
            (after, Claim.ACCEPTED, SOMEWHERE, _PAGE),
        ).fetchall():
            yield from (order_id for (order_id,) in page)
            after = page[-1][0]

    def __len__(self) -> int:
        """How many orders are to be looked for."""
        (count,) = self._database.execute("SELECT count(*) FROM ids WHERE claim > ?", (Claim.NONE,)).fetchone()
        return int(count)

    def unexpected(self, ids: Sequence[str]) -> list[str]:
        """The IDs of this list that nobody accepted."""
        query = "SELECT 1 FROM ids WHERE order_id = ? AND claim > ?"
        return [name for name in ids if self._database.execute(query, (name, Claim.NONE)).fetchone() is None]

    def tally(self, claim: Claim) -> Counter[Seen]:
        """How many orders with this claim have been seen in each way."""
        rows = self._database.execute("SELECT seen, count(*) FROM ids WHERE claim = ? GROUP BY seen", (claim,))
        return Counter({Seen(seen): count for seen, count in rows})

    def listed(self, claims: tuple[Claim, Claim], mask: Seen, seen: Seen) -> Listed:
        """The orders between two claims of which, within the mask, exactly this was seen."""
        condition = (*claims, mask, seen)
        (count,) = self._database.execute(
            "SELECT count(*) FROM ids WHERE claim BETWEEN ? AND ? AND seen & ? = ?", condition
        ).fetchone()
        first = self._database.execute(
            "SELECT order_id || iif(problem = '', '', ' (' || problem || ')') FROM ids"
            " WHERE claim BETWEEN ? AND ? AND seen & ? = ? ORDER BY order_id LIMIT ?",
            (*condition, MAX_EXAMPLES),
        )
        return Listed(count, tuple(name for (name,) in first))

    def _execute_many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(statement, rows)
        self._database.execute("COMMIT")
