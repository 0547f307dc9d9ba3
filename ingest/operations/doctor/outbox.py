"""Checks the outbox of `ingest relay`, if any: its table, the rights of the relay's role, and the age of its rows."""

from collections.abc import Iterator

from ingest.domain.errors import StoreUnavailable
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.store.outbox.outbox import OutboxBacklog
from ingest.store.outbox.outbox_inspection import OutboxFacts

_OF = Checks(Area.OUTBOX)

# A relay announces a row within seconds.
_LONG = 60.0


def findings(facts: OutboxFacts | StoreUnavailable, *, is_configured: bool) -> Iterator[Finding]:
    """Report problems that these facts imply for the relay.

    If no DSN is configured, the outbox is optional, and our role needs no rights on it.
    """
    if isinstance(facts, StoreUnavailable):
        # Without its own DSN, the outbox is in the orders' database, whose check already reports the problem.
        if is_configured:
            yield _OF.unusable_database(facts, "INGEST_OUTBOX_DSN")
        return
    if not is_configured and (not facts.exists or facts.missing):
        return
    if not facts.exists:
        yield _OF.error(
            f"there is no table {facts.table}",
            "create it: ingest relay --create, or --print-sql for your migrations, or check INGEST_OUTBOX_TABLE",
        )
    elif facts.missing:
        yield _OF.error(
            f"the role {facts.role} lacks {', '.join(facts.missing)} on {facts.table}",
            f"as the owner of the table, run the output of: ingest relay --print-sql --role {facts.role}",
        )
    elif facts.not_planned:
        yield _OF.error(
            f"{facts.table} cannot be relayed: {facts.not_planned}",
            "compare the table with the output of ingest relay --print-sql, and add the missing parts",
        )
    elif facts.is_locked:
        yield _OF.error(
            f"another transaction has locked {facts.table}, so no row is relayed",
            "wait for it, or end it. pg_locks lists the processes that hold locks on this table",
        )
    else:
        yield _OF.ok(f"the table {facts.table} meets the needs of a relay")
    if facts.backlog is not None:
        yield from _of_backlog(facts.table, facts.backlog)


def _of_backlog(table: str, backlog: OutboxBacklog) -> Iterator[Finding]:
    if backlog.held:
        yield _held(table, backlog)
    if backlog.held < backlog.rows or not backlog.held:
        yield _waiting(table, backlog.rows, backlog.oldest_age)


def _held(table: str, backlog: OutboxBacklog) -> Finding:
    of = f"such as {backlog.held_source!r}" if backlog.held_source else "because their column source is empty"
    return _OF.warning(
        f"{backlog.held:,} of the rows in {table} belong to no configured source, {of}, and are not relayed",
        "add the source to the file of INGEST_SOURCES and restart ingest relay, or correct the column source of the rows",
    )


def _waiting(table: str, rows: int, age: float) -> Finding:
    if age <= _LONG:
        return _OF.ok("no row has waited for more than a minute")
    noun, verb = ("row", "waits") if rows == 1 else ("rows", "wait")
    return _OF.warning(
        f"{rows:,} {noun} {verb} in {table}, the oldest for {age:,.0f} s",
        "start ingest relay. If it is running, read its log, and end transactions that have locked rows of the table",
    )
