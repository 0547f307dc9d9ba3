"""Real Valkey and PostgreSQL servers for the demo, the tests and a laptop: no container, nothing to install.

`embedded_servers` starts both in a private directory and stops both. What stops them:

| the caller | what stops the servers |
|---|---|
| leaves the block, by whatever exception | the block |
| gets SIGINT | the block: KeyboardInterrupt is an exception |
| gets SIGTERM | the block if its handler raises (`sigterm_raises`), else the watchdog |
| gets SIGKILL, or crashes | the watchdog |
| called `detach` | the command in `stop_command` |
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
    """Both servers, running."""

    directory: Path
    valkey: ValkeyServer
    postgres: PostgresServer
    _watchdog: Watchdog = field(repr=False)
    _teardown: ExitStack = field(repr=False)

    @property
    def redis_url(self) -> str:
        """Where clients of Valkey connect, password included."""
        return self.valkey.url

    @property
    def postgres_dsn(self) -> str:
        """Where clients of PostgreSQL connect, password included."""
        return self.postgres.dsn

    @property
    def stop_command(self) -> str:
        """The shell command that stops detached servers and removes their data."""
        return (
            f"kill -KILL {self.valkey.pid}; kill -QUIT {self.postgres.pid}; sleep 1; "
            f"rm -rf {quote(str(self.directory))}"
        )

    def detach(self) -> None:
        """Leave both running, with their directory, after the block and after this process."""
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
    """Start both servers together, and stop both at the end of the block.

    Args:
        directory: Where they keep everything; it stays. By default a private one is made, and removed.
        durable: Whether data survives a crash, as in production; else both are as fast as they can be.
        valkey_options: As `ValkeyServer` takes them.
        postgres_settings: As `PostgresServer` takes them.

    Raises:
        EmbeddedMissingError: The extra `embedded` is not installed.
        ServerError: One of them did not start.
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
        with ThreadPoolExecutor(1, "start-postgres") as beside:
            starting = beside.submit(postgres.start)
            valkey.start()
            starting.result()
        yield EmbeddedServers(home, valkey, postgres, watchdog, teardown)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise SystemExit in the main thread, so that `with` blocks are left in order."""

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
    """Make a directory that only we and the servers' user may enter."""
    user = unprivileged_user()
    if user is None:
        return Path(tempfile.mkdtemp(prefix="ingest-"))
    # root's own temporary directory may be closed to the servers' user
    for base in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108 - mkdtemp makes it safe
        if base.is_dir() and user.may_enter(base):
            home = Path(tempfile.mkdtemp(prefix="ingest-", dir=base))
            _admit(user, home)
            return home
    raise ServerError("PostgreSQL runs as 'nobody', which can enter no temporary directory here")


def _make_private(home: Path) -> None:
    """Make the caller's directory, if it is missing, as private as one of ours."""
    try:
        home.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return
    if user := unprivileged_user():
        _admit(user, home)


def _admit(user: UnixUser, home: Path) -> None:
    os.chown(home, -1, user.gid)
    home.chmod(0o710)
