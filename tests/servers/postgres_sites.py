"""The PostgreSQL servers of users: the oldest and the newest version, directly and through PgBouncer."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

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
        """Where the service connects."""
        return (self.pooler or self.postgres).dsn


@dataclass(frozen=True)
class SiteKind:
    """A version, and whether a pooler is before it."""

    version: int
    is_pooled: bool

    @property
    def name(self) -> str:
        """The name in the names of tests."""
        return f"postgresql-{self.version}" + ("-pgbouncer" if self.is_pooled else "")

    @contextmanager
    def open(self) -> Iterator[Site]:
        """Start the servers."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
            folder.chmod(0o755)
            server = PostgresServer if self.version == 18 else DebianPostgres
            postgres = stack.enter_context(server(folder / "postgres"))
            pooler = stack.enter_context(PgBouncer(folder / "pgbouncer", postgres)) if self.is_pooled else None
            yield Site(postgres, pooler)


# `make servers` and the header of a test run report missing servers.
SITE_KINDS = [
    SiteKind(version, is_pooled)
    for version in (18, *([15] if debian_postgres.IS_HERE else []))
    for is_pooled in (False, *([True] if pgbouncer.IS_HERE else []))
]
