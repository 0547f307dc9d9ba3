"""Reads facts about an outbox and our role's rights, without changes.

The statements of a relay are planned but not run, which reveals missing parts of the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import asyncpg

from ingest.domain.errors import StoreLocked, StoreUnavailable
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated
from ingest.store.outbox.outbox import Outbox, OutboxBacklog, quoted_table

_ROLE_AND_TABLE = "SELECT current_user AS role, to_regclass($1)::oid AS oid"
_RIGHTS = """
SELECT has_table_privilege($1::oid, 'SELECT') AS "SELECT", has_table_privilege($1::oid, 'DELETE') AS "DELETE",
       has_table_privilege($1::oid, 'UPDATE')
       OR coalesce((SELECT has_column_privilege($1::oid, attnum, 'UPDATE') FROM pg_attribute
                    WHERE attrelid = $1::oid AND attname = 'error' AND NOT attisdropped), true) AS "UPDATE (error)"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFacts:
    """Facts about an outbox.

    Attributes:
        exists: whether the table is visible to our role.
        missing: privileges that our role lacks.
        not_planned: any other reason why a relay's statements cannot be run.
        is_locked: whether a relay's statements would wait for another transaction's lock.
        backlog: the waiting rows, or None if they cannot be counted.
    """

    table: str
    role: str
    exists: bool
    missing: Sequence[str] = ()
    not_planned: str = ""
    is_locked: bool = False
    backlog: OutboxBacklog | None = None


async def inspect_outbox(dsn: str, table: str, sources: Sequence[str] | None = None) -> OutboxFacts:
    """Inspect the table and its waiting rows. Rows of other sources are held. It raises the same errors as `connect`."""
    async with connect(dsn, setting="INGEST_OUTBOX_DSN") as connection:
        with translated():
            async with connection.transaction(readonly=True):
                [found] = await connection.fetch(_ROLE_AND_TABLE, quoted_table(table))
                if found["oid"] is None:
                    return OutboxFacts(table=table, role=found["role"], exists=False)
                [rights] = await connection.fetch(_RIGHTS, found["oid"])
        missing = [right for right, is_there in rights.items() if not is_there]
        outbox = Outbox(connection, table, is_notified=False)
        facts = OutboxFacts(table=table, role=found["role"], exists=True, missing=missing)
        return facts if missing else await _with_backlog(facts, outbox, sources)


async def _with_backlog(facts: OutboxFacts, outbox: Outbox, sources: Sequence[str] | None) -> OutboxFacts:
    """Add the backlog, or the reason why a relay could not work."""
    try:
        await outbox.plan()
        return replace(facts, backlog=await outbox.backlog(sources))
    except StoreLocked:
        return replace(facts, is_locked=True)
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, asyncpg.PostgresError):
            raise  # the connection failed
        return replace(facts, not_planned=str(error))
