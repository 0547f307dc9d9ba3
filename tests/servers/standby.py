"""A streaming replica of a PostgreSQL server: a standby that can be promoted."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from proxy import Proxy
from support import connected, eventually

from ingest.lab.servers import PostgresServer
from ingest.lab.servers.postgres import POSTGRES_DURABLE, installed_programs
from ingest.store.schema import migrate, migrations


class StandbyServer(PostgresServer):
    """A replica that follows another server. A context manager.

    Args:
        directory: directory for all files.
        primary: the other server.
        through: the port of a proxy to the primary, or None for a direct connection.
    """

    def __init__(self, directory: Path, primary: PostgresServer, through: int | None = None) -> None:
        super().__init__(directory)
        self.password = primary.password
        self._source = primary.dsn.replace(f":{primary.port}/", f":{through or primary.port}/")

    def _initialise(self, password_file: Path) -> None:
        del password_file
        command: list[str | Path] = [
            installed_programs() / "pg_basebackup",
            f"--dbname={self._source}",
            f"--pgdata={self.data}",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        ]
        subprocess.run(command, check=True, capture_output=True)
        if self._user is not None:
            for path in (self.data, *self.data.rglob("*")):
                os.lchown(path, self._user.uid, self._user.gid)

    def _is_ready(self, port: int, pid: int) -> bool:
        if super()._is_ready(port, pid):
            return True
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "standby"


@dataclass(frozen=True)
class Pair:
    """A primary with our tables, its standby, and the network between them."""

    primary: PostgresServer
    standby: PostgresServer
    between: Proxy

    def dsn(self, *hosts: str, options: str = "") -> str:
        """A DSN with these hosts, each with its port."""
        parts = urlsplit(self.primary.dsn)
        account = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{account}@{','.join(hosts)}", query=options))

    async def catch_up(self) -> None:
        """Wait until the standby has everything."""
        async with connected(self.primary.dsn) as primary, connected(self.standby.dsn) as standby:
            written = await primary.fetchval("SELECT pg_current_wal_flush_lsn()::text")

            async def has_it() -> bool:
                return bool(await standby.fetchval("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written))

            await eventually(has_it)

    async def promote(self) -> None:
        """Let the standby take over."""
        async with connected(self.standby.dsn) as sql:
            assert await sql.fetchval("SELECT pg_promote()")


@contextmanager
def primary_and_standby() -> Iterator[Pair]:
    """Run both."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
        folder.chmod(0o755)
        primary = stack.enter_context(PostgresServer(folder / "primary", settings=POSTGRES_DURABLE))
        between = stack.enter_context(Proxy(primary.port))
        asyncio.run(migrate(primary.dsn, migrations()))
        standby = stack.enter_context(StandbyServer(folder / "standby", primary, through=between.port))
        yield Pair(primary, standby, between)
