"""What tests of all distances share: waiting for conditions, and the real commands as processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

T = TypeVar("T")
DEADLINE = 30.0


async def eventually(condition: Callable[[], Awaitable[T]], *, within: float = DEADLINE, every: float = 0.02) -> T:
    """The condition's first true value; fails when the deadline passes."""
    until = time.monotonic() + within
    while not (value := await condition()):
        assert time.monotonic() < until, f"not within {within} s: {condition}"
        await asyncio.sleep(every)
    return value


def eventually_sync(condition: Callable[[], T], *, within: float = DEADLINE, every: float = 0.02) -> T:
    """As `eventually`, for tests without an event loop."""
    until = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < until, f"not within {within} s: {condition}"
        time.sleep(every)
    return value


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain connection, closed at the end."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def with_database(dsn: str, database: str) -> str:
    """The DSN of another database on the same server."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


@dataclass
class Cli:
    """The real `ingest` command, with the environment of one test."""

    env: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(
        self, *args: str, stdin: str | bytes = "", env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, whatever the exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "ingest", *args],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env={**self.env, **(env or {})},
            timeout=timeout,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start, in a process group of its own; it is killed when the test ends."""
        process = subprocess.Popen(
            [sys.executable, "-m", "ingest", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.env, **(env or {})},
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@contextmanager
def closing_cli(env: dict[str, str]) -> Iterator[Cli]:
    cli = Cli(env)
    try:
        yield cli
    finally:
        cli.close()
