"""The outbox's table as SQL: for somebody's own migrations, or created at once."""

from importlib.resources import files

from ingest.domain.errors import ConfigError
from ingest.store.connection import connect
from ingest.store.outbox.outbox import channel_of, quoted_table
from ingest.store.translation import translated

_GRANTS = (
    "\n"
    "-- What a relay may do: read and delete rows, and note why one cannot be announced.\n"
    "DO $$ BEGIN\n"
    "    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN\n"
    "        CREATE ROLE {role} LOGIN;  -- give it a password, or a certificate\n"
    "    END IF;\n"
    "END $$;\n"
    "{usage}"
    "GRANT SELECT, DELETE, UPDATE (error) ON {table} TO {role};\n"
)
# Of the schema in which a table without one is created: its name is known only there.
_USAGE = "DO $$ BEGIN\n    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), '{name}');\nEND $$;\n"


def outbox_sql(table: str, role: str | None) -> str:
    """The statements that create the table, its trigger, and the rights of a relay's role; they may be run again.

    Args:
        table: its name, with a schema if it is not in the search path.
        role: the role that relays connect as; None if they connect as the table's owner.

    Raises:
        ConfigError: if the role has no usable name.
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
    """Create what is missing of the table.

    Raises:
        StoreUnavailable: if PostgreSQL cannot be reached.
        StoreRefused: if it refuses us.
    """
    async with connect(dsn, setting="INGEST_OUTBOX_DSN") as connection:
        with translated():
            await connection.execute(f"BEGIN;\n{outbox_sql(table, role)}\nCOMMIT")
