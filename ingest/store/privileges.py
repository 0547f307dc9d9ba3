"""Grants roles the privileges that workers or the HTTP API need, and no others."""

from collections.abc import Sequence

import asyncpg

from ingest.store.connections.translation import StoreRefused

# Without time and number, so that rows of the audit log cannot be backdated.
_ADD_TO_AUDIT_LOG = ("INSERT (operation, phase, actor, action, selection, count, source)", "audit_log")
# Privileges of a runtime role, which cannot change the schema because it is not an owner.
RUNTIME_PRIVILEGES = (
    ("SELECT, INSERT, UPDATE", "orders"),
    ("SELECT", "order_lines"),
    ("SELECT", "erased_orders"),
    ("SELECT, INSERT, UPDATE", "jobs"),
    ("SELECT, INSERT", "job_output"),
    # `ingest backfill` runs with the credentials of the external API, which only workers have.
    _ADD_TO_AUDIT_LOG,
    ("SELECT, INSERT, UPDATE", "polls"),
    ("SELECT", "schema_migrations"),
    ("SELECT, INSERT, UPDATE", "credentials"),
    ("SELECT, INSERT, DELETE", "order_history"),
)
# Privileges of the HTTP API's role: read, erase, reset versions to fetch orders again, and add to the audit log. Its console lists the
# audit log and the polls.
API_PRIVILEGES = (
    ("SELECT, DELETE, UPDATE (version)", "orders"),
    ("SELECT", "order_lines"),
    ("SELECT, INSERT", "erased_orders"),
    ("SELECT, INSERT, UPDATE", "jobs"),
    ("SELECT, INSERT, DELETE", "job_output"),
    _ADD_TO_AUDIT_LOG,
    ("SELECT", "audit_log"),
    ("SELECT", "polls"),
    ("SELECT", "schema_migrations"),
    ("SELECT, INSERT, DELETE", "order_history"),
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


async def grant(connection: asyncpg.Connection, role: str, granted: Sequence[tuple[str, str]]) -> None:
    """Grant privileges on tables, and the use of their schema, to a quoted role."""
    schema = await connection.fetchval("SELECT quote_ident(current_schema())")
    await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    for privileges, table in granted:
        if (privileges, table) == _ADD_TO_AUDIT_LOG:
            # Earlier releases granted the whole table, which includes every column.
            await connection.execute(f"REVOKE ALL ON {table} FROM {role}")
        await connection.execute(f"GRANT {privileges} ON {table} TO {role}")
