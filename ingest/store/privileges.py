"""Grants roles the privileges that workers or the HTTP API need, and no others."""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from ingest.store.connections.translation import StoreRefused


class Privilege(NamedTuple):
    """One privilege on a table, or on some of its columns."""

    action: str
    table: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.action} ({', '.join(self.columns)})" if self.columns else self.action


def _on(table: str, *actions: str) -> tuple[Privilege, ...]:
    return tuple(Privilege(action, table) for action in actions)


# Without time, number and role, so that rows of the audit log can be neither backdated nor attributed to another role.
_ADD_TO_AUDIT_LOG = Privilege(
    "INSERT", "audit_log", ("operation", "phase", "actor", "action", "selection", "count", "source")
)
# The request for a job never changes, and the results of a new job begin empty.
_ADD_JOB = Privilege(
    "INSERT",
    "jobs",
    ("kind", "source", "selection", "total", "rate", "since", "until", "dry_run", "requested_by", "lease", "holder", "leased_until", "started_at"),
)  # fmt: skip
_JOB_STATE = ("state", "started_at", "ended_at", "error", "lease", "expired_leases", "holder", "leased_until")
_JOB_PROGRESS = ("done", "gone", "examined", "position", "per_second", "result")
# Of earlier releases, which run next to this one during an upgrade.
_BACKFILL_PROGRESS = ("next_page", "listed", "missing", "outdated")
# Privileges of a runtime role, which cannot change the schema because it is not an owner.
RUNTIME_PRIVILEGES = (
    *_on("orders", "SELECT", "INSERT", "UPDATE"),
    *_on("order_lines", "SELECT"),
    *_on("erased_orders", "SELECT"),
    *_on("jobs", "SELECT"),
    _ADD_JOB,
    Privilege("UPDATE", "jobs", _JOB_STATE + _JOB_PROGRESS + _BACKFILL_PROGRESS),
    *_on("job_output", "SELECT", "INSERT"),
    # `ingest backfill` runs with the credentials of the external API, which only workers have.
    _ADD_TO_AUDIT_LOG,
    *_on("polls", "SELECT", "INSERT", "UPDATE"),
    *_on("schema_migrations", "SELECT"),
    *_on("credentials", "SELECT", "INSERT", "UPDATE"),
    *_on("order_history", "SELECT", "INSERT", "DELETE"),
)
# Privileges of the HTTP API's role: read, erase, reset versions to fetch orders again, and add to the audit log. Its console lists the
# audit log and the polls.
API_PRIVILEGES = (
    *_on("orders", "SELECT", "DELETE"),
    Privilege("UPDATE", "orders", ("version",)),
    *_on("order_lines", "SELECT"),
    *_on("erased_orders", "SELECT", "INSERT"),
    *_on("jobs", "SELECT"),
    _ADD_JOB,
    # An erasure removes the results of previews that contain the order.
    Privilege("UPDATE", "jobs", _JOB_STATE + _JOB_PROGRESS),
    *_on("job_output", "SELECT", "INSERT", "DELETE"),
    _ADD_TO_AUDIT_LOG,
    *_on("audit_log", "SELECT"),
    *_on("polls", "SELECT"),
    *_on("schema_migrations", "SELECT"),
    *_on("order_history", "SELECT", "INSERT", "DELETE"),
)


async def quoted_role(connection: asyncpg.Connection, role: str) -> str:
    """Return a role's name, quoted for SQL.

    Raises:
        StoreRefused: there is no such role.
    """
    # GRANT does not support parameters, so the server quotes the name.
    try:
        [[quoted, exists]] = await connection.fetch(
            "SELECT quote_ident($1), EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role
        )
    except asyncpg.DataError as error:
        # The argument is not UTF-8, or contains a character outside of the database's encoding.
        raise StoreRefused(f"role {role!a} does not exist: this database cannot store its name") from error
    if not exists:
        raise StoreRefused(f'role "{role}" does not exist')
    return str(quoted)


async def grant(connection: asyncpg.Connection, roles: Sequence[tuple[str, Sequence[Privilege]]]) -> None:
    """Give quoted roles these privileges on our tables, no others, and the use of their schema. Call it within a transaction."""
    schema = await connection.fetchval("SELECT quote_ident(current_schema())")
    # All first, because several names may be the same role. Earlier releases have granted more.
    for role, privileges in roles:
        tables = ", ".join({privilege.table: None for privilege in privileges})
        await connection.execute(f"REVOKE ALL ON {tables} FROM {role}")
    for role, privileges in roles:
        await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        for privilege in privileges:
            await connection.execute(f"GRANT {privilege} ON {privilege.table} TO {role}")
