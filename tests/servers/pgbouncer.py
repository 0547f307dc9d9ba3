"""PgBouncer in front of PostgreSQL in transaction mode, in which each transaction gets a free server process."""

import shutil
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from servers.get import PGBOUNCER

from ingest.lab.process import ChildProcess
from ingest.lab.servers import PostgresServer
from ingest.lab.servers.postgres import NO_SETTINGS
from ingest.lab.servers.server import Server, free_port
from ingest.lab.unix_user import lend, unprivileged_user

IS_HERE = PGBOUNCER.is_there()

_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 200
server_login_retry = 0.2
query_wait_timeout = 5
"""


class PgBouncer(Server):
    """A pooler on a free port of 127.0.0.1 with PostgreSQL's user and password. A context manager.

    Like PostgreSQL, it runs as `nobody` if root starts it.

    Args:
        directory: directory for all files.
        postgres: the running server.
        pool_size: connections to each database. Further clients wait for each other's transactions.
        settings: further settings.
    """

    def __init__(
        self, directory: Path, postgres: PostgresServer, pool_size: int = 2, settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        super().__init__(directory, watchdog=None, ports=free_port)
        self._postgres = postgres
        self._pool_size = pool_size
        self._settings = settings
        self._user = unprivileged_user()

    @property
    def dsn(self) -> str:
        """Where clients connect, password included."""
        parts = urlsplit(self._postgres.dsn)
        account = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{self.port}"))

    def stop(self) -> None:
        """Stop it immediately, together with its clients' connections."""
        self._process.signal(signal.SIGTERM)
        self._end(10.0)

    def _prepare(self) -> None:
        parts = urlsplit(self._postgres.dsn)
        users = self.directory / "users.txt"
        users.write_text(f'"{parts.username}" "{parts.password}"\n')
        self._lend_programs()
        if self._user is not None:
            for path in (self.directory, users):
                shutil.chown(path, self._user.uid, self._user.gid)

    def _lend_programs(self) -> None:
        self._program = PGBOUNCER.binary
        if self._user is None:
            return
        if self._user.may_read(self._program.resolve()):
            self._program = self._program.resolve()
            return
        folder, lent = self._program.parent, self.directory / "programs"
        lend((path for path in folder.rglob("*") if path.is_file()), base=folder, to=lent)
        self._program = lent / self._program.name

    def _command(self, port: int) -> Sequence[str | Path]:
        configuration = self.directory / "pgbouncer.ini"
        text = _CONFIGURATION.format(
            port=self._postgres.port, own_port=port, users=self.directory / "users.txt", pool_size=self._pool_size
        )
        configuration.write_text(text + "".join(f"{name} = {value}\n" for name, value in self._settings.items()))
        configuration.chmod(0o644)
        return [self._program, configuration]

    def _is_ready(self, port: int, pid: int) -> bool:  # noqa: ARG002  a port that was taken ends it
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
        return False

    def _request_end(self) -> None:
        self._process.signal(signal.SIGTERM)

    def _clean_up(self) -> None:
        pass

    def _spawn(self, command: Sequence[str | Path], ending: signal.Signals) -> ChildProcess:
        return ChildProcess(
            command,
            directory=self.directory,
            log=self.log,
            watchdog=self._watchdog,
            ending=ending,
            user=self._user,
        )


@contextmanager
def temporary_pooler(postgres: PostgresServer, **options: Any) -> Iterator[PgBouncer]:
    """A pooler that runs while the block does."""
    with TemporaryDirectory(prefix="ingest-") as folder:
        Path(folder).chmod(0o755)
        with PgBouncer(Path(folder) / "pgbouncer", postgres, **options) as running:
            yield running
