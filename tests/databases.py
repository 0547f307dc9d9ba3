"""The databases of tests: a new one for each, from templates with the roles of deploy/ and the tables of the service."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
from shipped import as_account, as_api, create_roles
from support import with_database

from ingest.domain.source_name import UNNAMED
from ingest.store.connections.pool import Pool
from ingest.store.orders.erasing import erase_rows
from ingest.store.schema import migrate, migrations

WITH_ROLES = "template_roles"
MIGRATED = "template_ingest"
# Copying files costs the server a third less processor time than writing them to its log. Rights on a database are not copied.
_CREATE = "CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
_COPY_RIGHTS = f"""
UPDATE pg_database SET datacl = (SELECT datacl FROM pg_database WHERE datname = '{WITH_ROLES}') WHERE datname = '{{name}}'
"""


async def execute(dsn: str, *statements: str) -> None:
    """Run statements as the user of the DSN."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def prepare(dsn: str) -> None:
    """Create the templates on a new server, as the superuser of the DSN."""
    await execute(dsn, f"CREATE DATABASE {WITH_ROLES}")
    create_roles(with_database(dsn, WITH_ROLES))
    await create_tables(await create(dsn, MIGRATED, WITH_ROLES))


async def create_tables(dsn: str) -> None:
    """Migrate as the owner, and grant the roles their rights, in a database with the roles."""
    await migrate(as_account(dsn, "ingest_owner"), migrations(), runtime_role="ingest", api_role="ingest_api")


async def create(dsn: str, name: str, template: str = MIGRATED) -> str:
    """Create a database as the superuser of the DSN. Returns its DSN with the role of workers."""
    await execute(dsn, _CREATE.format(name=name, template=template), _COPY_RIGHTS.format(name=name))
    return as_account(with_database(dsn, name), "ingest")


@asynccontextmanager
async def database(dsn: str, template: str = MIGRATED) -> AsyncIterator[str]:
    """The DSN of a new database with the role of workers, dropped at the end, on the server of the superuser's DSN."""
    name = f"test_{secrets.token_hex(6)}"
    try:
        yield await create(dsn, name, template)
    finally:
        await execute(dsn, f"DROP DATABASE {name} WITH (FORCE)")


async def erase(dsn: str, *order_ids: str, source: str = UNNAMED) -> int:
    """Erase rows as the HTTP API does, and return how many there were."""
    async with Pool.open(as_api(dsn), size=1) as pool:
        return await erase_rows(pool, order_ids, operation=uuid4(), actor="me", action="orders.erase", source=source)
