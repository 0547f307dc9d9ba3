"""Creates the outbox's table, or returns its SQL for a program's own migrations."""

from importlib.resources import files

from ingest.domain.errors import ConfigError
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated
from ingest.store.outbox.outbox import channel_of, quoted_table

_GRANTS = """
-- Rights of a relay: read and delete rows, and record why a row cannot be queued.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN
        CREATE ROLE {role} LOGIN;  -- give it a password, or a certificate
    END IF;
END $$;
{usage}GRANT SELECT, DELETE, UPDATE (error) ON {table} TO {role};
"""
# For a table without a schema. The server decides in which schema it is created.
_USAGE = "DO $$ BEGIN\n    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), '{name}');\nEND $$;\n"


def outbox_sql(table: str, role: str | None) -> str:
    """Return idempotent statements that create the table, its trigger, and the rights of a relay's role.

    Args:
        table: its name, with a schema if it is not in the search path.
        role: the role that relays connect as, or None for the table's owner.

    Raises:
        ConfigError: the role's name is unusable.
    """
    template = (files(__package__) / "outbox.sql").read_text(encoding="utf-8")
    name = channel_of(table)
    prefix = quoted_table(table).removesuffix(f'"{name}"')
    sql = (
        template.replace("{table}", quoted_table(table))
        .replace("{function}", f'{prefix}"{name}_notify"')
        .replace("{trigger}", f'"{name}_notify"')
        .replace("{index}", f'"{name}_waiting"')
        .replace("{channel}", name)
    )
    if role is None:
        return sql
    if not role or not role.isprintable() or set(role) & set("\"'\\$") or len(role.encode()) > 63:
        raise ConfigError("--role: is not the name of a role")
    usage = _USAGE.format(name=role)
    if prefix:
        usage = f'GRANT USAGE ON SCHEMA {prefix.removesuffix(".")} TO "{role}";\n'
    return sql + _GRANTS.format(name=role, role=f'"{role}"', table=quoted_table(table), usage=usage)


async def create_outbox(dsn: str, table: str, role: str | None) -> None:
    """Create the missing parts of the table. It raises the same errors as `connect`."""
    async with connect(dsn, setting="INGEST_OUTBOX_DSN") as connection:
        with translated():
            await connection.execute(f"BEGIN;\n{outbox_sql(table, role)}\nCOMMIT")
