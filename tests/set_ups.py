"""A sound set-up on durable servers, for tests that break one thing of it and examine it."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import databases
from pydantic import SecretStr
from shipped import as_account, create_roles
from support import connected, with_database

from ingest.lab.servers import EmbeddedServers
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.operations.doctor.examine import examine
from ingest.operations.doctor.finding import Area, Finding, Level
from ingest.settings import load_settings
from ingest.sources.doctor_subject import subject_of


@contextmanager
def database(servers: EmbeddedServers, *, migrated: bool = True, options: str = "") -> Iterator[str]:
    """The DSN of a new database with the role of workers, or of its owner if it is not migrated."""
    name = f"set_up_{secrets.token_hex(4)}"
    if options:
        # Other locales or encodings than the templates'.
        asyncio.run(databases.execute(servers.postgres_dsn, f"CREATE DATABASE {name} {options}"))
        create_roles(with_database(servers.postgres_dsn, name))
        dsn = as_account(with_database(servers.postgres_dsn, name), "ingest")
        if migrated:
            asyncio.run(databases.create_tables(dsn))
    else:
        template = databases.MIGRATED if migrated else databases.WITH_ROLES
        dsn = asyncio.run(databases.create(servers.postgres_dsn, name, template))
    try:
        yield dsn if migrated else as_account(dsn, "ingest_owner")
    finally:
        asyncio.run(databases.execute(servers.postgres_dsn, f"DROP DATABASE {name} WITH (FORCE)"))


@asynccontextmanager
async def role(dsn: str, *options: str) -> AsyncIterator[str]:
    """The DSN of a new role that owns nothing, and may only connect and find the tables."""
    name, password = f"role_{secrets.token_hex(4)}", "s3cr3t"
    async with connected(dsn) as sql:
        await sql.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}' {' '.join(options)}")
        await sql.execute(
            f"GRANT CONNECT ON DATABASE {dsn.rpartition('/')[2]} TO {name}; GRANT USAGE ON SCHEMA public TO {name}"
        )
        try:
            yield dsn.replace(dsn.partition("://")[2].partition("@")[0], f"{name}:{password}", 1)
        finally:
            await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@dataclass
class SetUp:
    """Settings to examine, and how."""

    settings: dict[str, Any] = field(default_factory=dict)
    within: float = 10.0

    @classmethod
    @asynccontextmanager
    async def sound(cls, redis_url: str, dsn: str, queue: str) -> AsyncIterator["SetUp"]:
        """A set-up with an API that has every order."""
        async with SimulatedApi(Behaviour(any_id=True)) as api:
            settings = {"redis_url": redis_url, "postgres_dsn": dsn, "stream": queue, "upstream_url": api.url_template}
            yield cls(settings)

    async def examined(self, order_id: str | None = None, **settings: Any) -> list[Finding]:
        """All that is found with these settings on top."""
        given = {**self.settings, **settings}
        for name in {"redis_url", "postgres_dsn", "outbox_dsn"} & given.keys():
            given[name] = SecretStr(given[name])
        return await examine(subject_of(load_settings(**given), None, order_id, os.environ), self.within)

    async def faults(self, area: Area, **settings: Any) -> list[str]:
        """The errors in the area, after checking that there are none elsewhere."""
        found = [finding for finding in await self.examined(**settings) if finding.level is Level.ERROR]
        assert all(finding.area is area and finding.advice for finding in found), found
        return [finding.what for finding in found]

    async def warnings(self, area: Area, **settings: Any) -> list[str]:
        """The warnings in the area, after checking that there are no errors."""
        found = await self.examined(**settings)
        assert not [finding for finding in found if finding.level is Level.ERROR], found
        return [finding.what for finding in found if finding.level is Level.WARNING and finding.area is area]
