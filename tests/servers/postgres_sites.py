"""The PostgreSQL servers of users: the oldest and the newest version, directly and through PgBouncer."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from servers import debian_postgres, pgbouncer
from servers.debian_postgres import DebianPostgres
from servers.pgbouncer import PgBouncer

from ingest.lab.servers import PostgresServer


@dataclass(frozen=True)
class Site:
    """Servers that run."""

    postgres: PostgresServer
    pooler: PgBouncer | None

    @property
    def dsn(self) -> str:
        return (self.pooler or self.postgres).dsn


@dataclass(frozen=True)
class SiteKind:
    """A version, and whether a pooler is before it."""

    version: int
    is_pooled: bool

    @property
    def name(self) -> str:
        return f"postgresql-{self.version}" + ("-pgbouncer" if self.is_pooled else "")

    @contextmanager
    def open(self) -> Iterator[Site]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
            folder.chmod(0o755)
            server = PostgresServer if self.version == 18 else DebianPostgres
            postgres = stack.enter_context(server(folder / "postgres"))
            pooler = stack.enter_context(PgBouncer(folder / "pgbouncer", postgres)) if self.is_pooled else None
            yield Site(postgres, pooler)


# `make servers` reports missing ones. Other tests use 18 directly. Of all four, `make test` runs 15, and a pooler before 18.
_WAYS = (False, *([True] if pgbouncer.IS_HERE else []))
_KINDS = [SiteKind(version, way) for version in (18, *([15] if debian_postgres.IS_HERE else [])) for way in _WAYS]
_LEFT = {_KINDS[0], _KINDS[-1]} if len(_KINDS) == 4 else set()
SITE_KINDS = [pytest.param(kind, marks=[pytest.mark.nightly] * (kind in _LEFT)) for kind in _KINDS]
