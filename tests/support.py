"""Shared functions of all tests: waiting for conditions, and the real commands as processes."""

import asyncio
import atexit
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import Any, TextIO, TypeVar, overload
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from command_server import CommandServer, Running
from shipped import as_admin, environment_of

T = TypeVar("T")
# Long, because a failure is rare and a loaded machine is not.
DEADLINE = 60.0


@overload
async def eventually(condition: Callable[[], Awaitable[T]], *, within: float = DEADLINE, every: float = 0.02) -> T: ...
@overload
async def eventually(condition: Callable[[], T], *, within: float = DEADLINE, every: float = 0.02) -> T: ...
async def eventually(condition: Callable[[], Any], *, within: float = DEADLINE, every: float = 0.02) -> Any:
    """Wait for the first true value of a condition, which may be asynchronous, and fail after the deadline."""
    until = time.monotonic() + within
    while not (value := await found if isinstance(found := condition(), Awaitable) else found):
        assert time.monotonic() < until, f"not within {within} s: {condition}"
        await asyncio.sleep(every)
    return value


async def becomes(value_of: Callable[[], Awaitable[T]], wanted: T, *, within: float = DEADLINE) -> None:
    """Wait until a value is the expected one, and fail after the deadline."""

    async def is_wanted() -> bool:
        return await value_of() == wanted

    await eventually(is_wanted, within=within)


def eventually_sync(condition: Callable[[], T], *, within: float = DEADLINE, every: float = 0.02) -> T:
    """As `eventually`, for tests without an event loop."""
    until = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < until, f"not within {within} s: {condition}"
        time.sleep(every)
    return value


INSERT_ORDER = (
    "INSERT INTO orders (order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at, attempts,"
    " enqueued_at, ingested_at) SELECT $1, 's', 'EUR', t, 0, 0, '[]', t, t, 1, t, t FROM (SELECT timestamptz '2020-01-01' AS t) AS t"
)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain connection of the administrator, closed at the end."""
    async with logged_in(as_admin(dsn)) as connection:
        yield connection


@asynccontextmanager
async def logged_in(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain connection of the account in the DSN, closed at the end."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def with_database(dsn: str, database: str) -> str:
    """The DSN of another database on the same server."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


_PIPE_SIZE = 1 << 16


@cache
def _command_server() -> CommandServer:
    server = CommandServer(_interpreters(os.environ))
    atexit.register(server.close)
    return server


def _interpreters(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an interpreter or a library may read when it starts, without ours and pytest's."""
    return {
        name: value for name, value in environment.items() if not name.startswith(("INGEST_", "PYTEST_", "COLUMNS"))
    }


def _may_be_forked(program: Sequence[str], environment: Mapping[str, str]) -> bool:
    return (
        sys.platform == "linux"
        and bool(program)
        and CommandServer.is_for(program)
        and not any(name.startswith("COVERAGE_") for name in environment)
        and _interpreters(environment) == _command_server().environment
    )


def _forked(
    args: Sequence[str], stdin: bytes, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as given, TemporaryFile() as out, TemporaryFile() as err:
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(stdin)
        streams = [given.fileno(), out.fileno(), err.fileno()]
        code = _command_server().run(args, environment, streams).run_to_the_end(timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(args, code, out.read().decode(), err.read().decode())


class ForkedProcess:
    """A running program of the command server, with text output and the methods of `subprocess.Popen` that tests use.

    Args:
        program: as for the command server.
        environment: the complete environment.
    """

    def __init__(self, program: Sequence[str], environment: Mapping[str, str]) -> None:
        out, out_written = os.pipe()
        err, err_written = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            streams = [nothing, out_written, err_written]
            self._running: Running = _command_server().run(program, environment, streams, new_session=True)
        finally:
            for descriptor in (nothing, out_written, err_written):
                os.close(descriptor)
        self.pid = self._running.pid
        self.stdout: TextIO | None = os.fdopen(out)
        self.stderr: TextIO | None = os.fdopen(err)

    @property
    def returncode(self) -> int | None:
        return self._running.returncode

    def poll(self) -> int | None:
        return self._running.poll()

    def wait(self, timeout: float | None = None) -> int:
        return self._running.wait(timeout)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read the remaining output of both streams, close them, and wait for the end."""
        read = {"stdout": "", "stderr": ""}

        def read_all(name: str, stream: TextIO) -> None:
            with stream:
                read[name] = stream.read()

        streams = [(name, stream) for name in read if (stream := getattr(self, name)) and not stream.closed]
        readers = [Thread(target=read_all, args=stream, daemon=True) for stream in streams]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return read["stdout"], read["stderr"]


Process = ForkedProcess | subprocess.Popen[str]


def start_program(
    *program: str | Path, env: Mapping[str, str], new_interpreter: bool = False
) -> ForkedProcess | subprocess.Popen[str]:
    """Start a file of the tests or a command of `ingest` in its own process group.

    Args:
        program: the file or the command with its arguments.
        env: the complete environment.
        new_interpreter: whether to start a new Python, for tests of the start itself.
    """
    words = [str(word) for word in program]
    if not new_interpreter and _may_be_forked(words, env):
        return ForkedProcess(words, env)
    return subprocess.Popen(
        [sys.executable, *([] if words[0].endswith(".py") else ["-m", "ingest"]), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


@dataclass
class Cli:
    """The real `ingest` command, with the environment of one test, and the accounts of a deployment."""

    env: dict[str, str]
    running: list[Process] = field(default_factory=list)

    def run(
        self, *args: str, stdin: str | bytes = "", env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end with any exit code, and in a new interpreter only if that makes a difference."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        whole = {**environment_of(args, self.env), **(env or {})}
        if len(given) <= _PIPE_SIZE and _may_be_forked(args, whole):
            return _forked(args, given, whole, timeout)
        done = subprocess.run(
            [sys.executable, "-m", "ingest", *args],
            input=given,
            capture_output=True,
            env=whole,
            timeout=timeout,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str, env: Mapping[str, str] | None = None, new_interpreter: bool = False) -> Process:
        """Start in its own process group, and kill it at the end of the test."""
        whole = {**environment_of(args, self.env), **(env or {})}
        process = start_program(*args, env=whole, new_interpreter=new_interpreter)
        self.running.append(process)
        return process

    def forget_api(self) -> None:
        """Leave out the settings of the external API, because sources have their own."""
        for name in [name for name in self.env if name.startswith("INGEST_UPSTREAM_")]:
            del self.env[name]

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def fill(pipe: int) -> None:
    """Fill a pipe, so that it blocks its writers."""
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"." * select.PIPE_BUF)
    os.set_blocking(pipe, True)


@contextmanager
def closing_cli(env: dict[str, str]) -> Iterator[Cli]:
    cli = Cli(env)
    try:
        yield cli
    finally:
        cli.close()
