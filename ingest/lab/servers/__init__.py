"""Real Valkey and PostgreSQL servers for the demo, the tests and development, without containers or installation.

`embedded_servers` starts both servers in a private directory. They are stopped as follows:

| caller | servers are stopped by |
|---|---|
| leaves the block, including by an exception | the block |
| gets SIGINT | the block, because KeyboardInterrupt is an exception |
| gets SIGTERM | the block if the handler raises (`sigterm_raises`), else the watchdog |
| gets SIGKILL, or crashes | the watchdog |
| has called `detach` | the command in `stop_command` |
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import NoReturn

from ingest.lab.errors import EmbeddedMissingError, ServerError, making_a_directory
from ingest.lab.servers.postgres import NO_SETTINGS, POSTGRES_DURABLE, PostgresServer
from ingest.lab.servers.valkey import NO_OPTIONS, VALKEY_DURABLE, ValkeyServer
from ingest.lab.unix_user import UnixUser, unprivileged_user
from ingest.lab.watchdog import Watchdog

__all__ = [
    "POSTGRES_DURABLE",
    "VALKEY_DURABLE",
    "EmbeddedMissingError",
    "EmbeddedServers",
    "PostgresServer",
    "ServerError",
    "ValkeyServer",
    "embedded_servers",
    "sigterm_raises",
]


@dataclass(frozen=True, slots=True)
class EmbeddedServers:
    """Both running servers."""

    directory: Path
    valkey: ValkeyServer
    postgres: PostgresServer
    _watchdog: Watchdog = field(repr=False)
    _teardown: ExitStack = field(repr=False)

    @property
    def redis_url(self) -> str:
        """The URL for clients of Valkey, including the password."""
        return self.valkey.url

    @property
    def postgres_dsn(self) -> str:
        """The DSN for clients of PostgreSQL, including the password."""
        return self.postgres.dsn

    @property
    def stop_command(self) -> str:
        """The shell command that stops detached servers and removes their data."""
        return (
            f"kill -KILL {self.valkey.pid}; kill -QUIT {self.postgres.pid}; sleep 1; "
            f"rm -rf {quote(str(self.directory))}"
        )

    def detach(self) -> None:
        """Leave both servers running, with their directory, after the block and after this process."""
        self._teardown.pop_all()
        self.valkey.detach()
        self.postgres.detach()
        self._watchdog.dismiss()


@contextmanager
def embedded_servers(
    *,
    directory: Path | None = None,
    durable: bool = False,
    valkey_options: Mapping[str, str] = NO_OPTIONS,
    postgres_settings: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[EmbeddedServers]:
    """Start both servers concurrently, and stop both at the end of the block.

    Args:
        directory: directory for all files, which is kept. By default, a private directory is created and removed.
        durable: whether data survives a crash, as in production. Otherwise both servers run as fast as possible.
        valkey_options: options of `ValkeyServer`.
        postgres_settings: settings of `PostgresServer`.

    Raises:
        EmbeddedMissingError: the extra `embedded` is not installed.
        ServerError: a server did not start.
    """
    if durable:
        valkey_options = {**VALKEY_DURABLE, **valkey_options}
        postgres_settings = {**POSTGRES_DURABLE, **postgres_settings}
    with ExitStack() as teardown:
        home = directory or _private_directory()
        watchdog = teardown.enter_context(Watchdog(removes=None if directory else home))
        if directory is None:
            teardown.callback(shutil.rmtree, home)
        else:
            _make_private(home)
        valkey = ValkeyServer(home / "valkey", options=valkey_options, watchdog=watchdog)
        postgres = PostgresServer(home / "postgres", settings=postgres_settings, watchdog=watchdog)
        teardown.callback(valkey.close)
        teardown.callback(postgres.close)
        with ThreadPoolExecutor(1, "start-postgres") as executor:
            starting = executor.submit(postgres.start)
            valkey.start()
            starting.result()
        yield EmbeddedServers(home, valkey, postgres, watchdog, teardown)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise SystemExit in the main thread, so that `with` blocks are exited in order."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@making_a_directory()
def _private_directory() -> Path:
    """Create a directory that only the current user and the servers' user can enter."""
    user = unprivileged_user()
    if user is None:
        return Path(tempfile.mkdtemp(prefix="ingest-"))
    # The servers' user may not have access to root's temporary directory.
    for base in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108 - mkdtemp makes it safe
        if base.is_dir() and user.may_enter(base):
            home = Path(tempfile.mkdtemp(prefix="ingest-", dir=base))
            _admit(user, home)
            return home
    raise ServerError("PostgreSQL runs as 'nobody', which cannot enter any temporary directory here")


def _make_private(home: Path) -> None:
    """Create the caller's directory if it does not exist, with the same permissions as our own."""
    try:
        home.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return
    if user := unprivileged_user():
        _admit(user, home)


def _admit(user: UnixUser, home: Path) -> None:
    os.chown(home, -1, user.gid)
    home.chmod(0o710)
