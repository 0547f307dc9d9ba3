"""Checks the outbox of `ingest relay`, where there is one: its table, the rights of the relay's role, and whether rows are relayed."""

from collections.abc import Iterator
from dataclasses import dataclass

from ingest.domain.errors import StoreUnavailable
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.store.outbox.outbox_inspection import OutboxFacts
from ingest.store.translation import StoreRefused

_OF = Checks(Area.OUTBOX)

# A relay announces a row within seconds.
_LONG = 60.0


@dataclass(frozen=True, slots=True)
class OutboxSubject:
    """The outbox to examine.

    Attributes:
        dsn: of its database; None if no outbox is configured: then it is looked for in the database of the orders.
        table: its name.
    """

    dsn: str | None
    table: str


def unusable(error: StoreUnavailable) -> Finding:
    """Its database cannot be asked at all."""
    if isinstance(error, StoreRefused):
        return _OF.fault(str(error), "check user, password and database in INGEST_OUTBOX_DSN")
    return _OF.fault(f"unavailable: {error}", "start it, or check INGEST_OUTBOX_DSN and the network between")


def findings(facts: OutboxFacts, *, is_configured: bool) -> Iterator[Finding]:
    """What these facts mean for the relay.

    Args:
        facts: of the outbox.
        is_configured: whether we are told where it is. If not, none has to be there, and our role needs no right to it.
    """
    if not is_configured and (not facts.exists or facts.missing):
        return
    if not facts.exists:
        yield _OF.fault(
            f"there is no table {facts.table}",
            "create it: ingest relay --create, or --print-sql for your migrations; or check INGEST_OUTBOX_TABLE",
        )
    elif facts.missing:
        yield _OF.fault(
            f"the role {facts.role} lacks {', '.join(facts.missing)} on {facts.table}",
            f"as the owner of the table, run what this prints: ingest relay --print-sql --role {facts.role}",
        )
    elif facts.not_planned:
        yield _OF.fault(
            f"{facts.table} cannot be relayed: {facts.not_planned}",
            "compare the table with that of ingest relay --print-sql, and add what is missing",
        )
    elif facts.is_locked:
        yield _OF.fault(
            f"another transaction has locked {facts.table}: no row is relayed meanwhile",
            "wait for its end, or end it: pg_locks has the IDs of the processes with locks on this table",
        )
    else:
        yield _OF.good(f"the table {facts.table} is as a relay needs it")
    if facts.backlog is not None:
        yield _waiting(facts.table, facts.backlog.rows, facts.backlog.oldest_age)


def _waiting(table: str, rows: int, age: float) -> Finding:
    if age <= _LONG:
        return _OF.good("no row has waited for more than a minute")
    noun, verb = ("row", "waits") if rows == 1 else ("rows", "wait")
    return _OF.warning(
        f"{rows:,} {noun} {verb} in {table}, the oldest for {age:,.0f} s: they are not relayed",
        "start ingest relay; if it runs, read its log, and end transactions that have locked rows of the table",
    )
