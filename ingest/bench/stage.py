"""Sets up servers, the simulated external API, the service's commands and the programs of a bench.

    with stage() as on:
        on.migrate()
        api = on.api("--latency", "0.1-0.2")
        on.commands.configure({"INGEST_UPSTREAM_URL": api.url})
        on.clear()
        worker = on.commands.start("worker", "--processes", "2", "--metrics-port", "0")
        ...
        worker.stop(30)

Everything runs under a watchdog, so that all of it is removed however this process ends.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psutil
import psycopg
import redis

from ingest.bench.certificate import Certificate
from ingest.bench.errors import BenchFailed
from ingest.domain.errors import Unavailable
from ingest.lab.commands import Commands, LoggedProcess
from ingest.lab.programs import Program
from ingest.lab.servers import EmbeddedServers, embedded_servers
from ingest.lab.servers.postgres import NO_SETTINGS
from ingest.lab.session import allow_open_files, orderly_exit, private_directory
from ingest.lab.simulated_api import RunningApi
from ingest.lab.usage import cpu_seconds
from ingest.queue.layout.keys import Keys
from ingest.store.schema import migrate, migrations

STREAM = "orders"
FOREIGN_STREAM = "ingest-bench"
"""The queue's name on a server that other programs use as well."""

_IDS_FILE = "ids.txt"
_LOCAL = {"127.0.0.1", "::1", "localhost"}
_SERVER_ERRORS = (redis.RedisError, psycopg.Error, Unavailable, OSError)


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers to use, with None for embedded ones."""

    redis_url: str | None = None
    postgres_dsn: str | None = None


EMBEDDED = Servers()


@contextmanager
def stage(
    given: Servers = EMBEDDED, *, durable: bool = True, postgres_settings: Mapping[str, str] = NO_SETTINGS
) -> "Iterator[Stage]":
    """Set up all parts, and remove them at the end, including on SIGTERM and Ctrl-C.

    On a given Redis, the queue is named `FOREIGN_STREAM`. In a given database, the table of orders must be empty, and
    is empty again at the end.

    Args:
        given: servers to use instead of embedded ones.
        durable: whether data of embedded servers survives a crash of the machine, as in production.
        postgres_settings: settings of the embedded PostgreSQL.

    Raises:
        LabFailed: a server does not start, becomes unavailable, or cannot be used.
    """
    allow_open_files()
    try:
        with orderly_exit() as stack:
            servers = None
            if given.redis_url is None or given.postgres_dsn is None:
                servers = stack.enter_context(embedded_servers(durable=durable, postgres_settings=postgres_settings))
            home = servers.directory if servers else private_directory(stack)
            yield Stage(home / "bench", stack, servers, given)
    except _SERVER_ERRORS as error:
        raise BenchFailed(f"a server of the bench cannot be used: {error}") from error


class Stage:
    """The parts that a bench uses, created by `stage`.

    Attributes:
        redis_url: URL of Redis.
        postgres_dsn: DSN of PostgreSQL.
        stream: the queue's name, as in INGEST_STREAM.
        commands: starts the service's own commands, configured with both servers, the stream and without /metrics.
        home: a private directory, which is removed at the end.
    """

    def __init__(self, home: Path, stack: ExitStack, servers: EmbeddedServers | None, given: Servers) -> None:
        self.home = home
        self._stack = stack
        self._postgres_pid = servers.postgres.pid if servers and given.postgres_dsn is None else None
        self.redis_url = given.redis_url or (servers.redis_url if servers else "")
        self.postgres_dsn = given.postgres_dsn or (servers.postgres_dsn if servers else "")
        self.stream = STREAM if given.redis_url is None else FOREIGN_STREAM
        self.redis = stack.enter_context(closing(redis.Redis.from_url(self.redis_url)))
        self._postgres = stack.enter_context(psycopg.connect(self.postgres_dsn, autocommit=True))
        if given.postgres_dsn is not None:
            _require_empty_table(self._postgres)
            self._postgres_pid = _local_postmaster(given.postgres_dsn, self._postgres)
        if given != EMBEDDED:
            stack.callback(self._leave_clean)
        self.commands = stack.enter_context(Commands(home))
        self.commands.configure(
            {
                "INGEST_REDIS_URL": self.redis_url,
                "INGEST_POSTGRES_DSN": self.postgres_dsn,
                "INGEST_STREAM": self.stream,
                "INGEST_METRICS_PORT": "0",
            }
        )

    def migrate(self) -> None:
        """Create the service's tables."""
        asyncio.run(migrate(self.postgres_dsn, migrations()))

    def api(self, *options: str, tls: bool = False) -> RunningApi:
        """Start a simulated external API in a separate process, which serves an order for any ID.

        Args:
            options: options of `ingest upstream`.
            tls: whether it serves HTTPS with a certificate of a new CA.
        """
        if not tls:
            return RunningApi(self.commands, "--any-id", *options)
        certificate = Certificate.issue(self.home)
        of_tls = certificate.api_options()
        return RunningApi(self.commands, "--any-id", *options, *of_tls, ca_file=certificate.authority)

    def program(self, module: str, *arguments: str, **environment: str) -> Program:
        """Start `python -m MODULE` as a separate process with these environment variables."""
        watchdog = self.commands.watchdog
        program = Program(module, *arguments, environment=environment, home=self.home, watchdog=watchdog)
        self._stack.callback(program.kill)
        return program

    def executable(self, file: Path, *arguments: str, **environment: str) -> LoggedProcess:
        """Start an executable file as a separate process with these environment variables."""
        command = [str(file), *arguments]
        log, watchdog = self.home / f"{file.name}.log", self.commands.watchdog
        process = LoggedProcess(file.name, command, home=self.home, log=log, watchdog=watchdog, environment=environment)
        self._stack.callback(process.kill)
        return process

    def keys(self, group: str = "ingest") -> Keys:
        """The queue's keys in Redis."""
        return Keys.of(self.stream, group)

    def write_ids(self, order_ids: Iterable[str]) -> str:
        """Write a file with an order ID on each line, and return its name in `home`."""
        (self.home / _IDS_FILE).write_text("".join(f"{order_id}\n" for order_id in order_ids))
        return _IDS_FILE

    def enqueue(self, order_ids: Iterable[str]) -> None:
        """Announce orders with the service's own command."""
        self.commands.start("enqueue", "--quiet", "--file", self.write_ids(order_ids)).finish()

    def queued(self) -> tuple[int, int]:
        """The number of entries in both lanes and of orders in the retry set at the same moment."""
        keys = self.keys()
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.xlen(keys.stream)
            pipe.xlen(keys.express)
            pipe.zcard(keys.retry)
            stream, express, retry = pipe.execute()
        return int(stream) + int(express), int(retry)

    def clear(self) -> None:
        """Empty the table of orders and the queue, including dead letters, so that all runs start equally."""
        self.sql("TRUNCATE orders")
        with suppress(psycopg.errors.InsufficientPrivilege):
            self.sql("CHECKPOINT")
        for key in self.redis.scan_iter(f"ingest:{{{self.stream}}}:*", count=1000):
            self.redis.delete(key)

    def cpu(self) -> tuple[float, float | None]:
        """CPU seconds of Redis and PostgreSQL so far, with None for a PostgreSQL on another machine."""
        postgres = None if self._postgres_pid is None else cpu_seconds(self._postgres_pid)
        said: Any = self.redis.info("cpu")
        parts = ("used_cpu_user", "used_cpu_sys", "used_cpu_user_children", "used_cpu_sys_children")
        return sum(float(said[part]) for part in parts), postgres

    def sql(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        cursor = self._postgres.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def _leave_clean(self) -> None:
        with suppress(psycopg.errors.UndefinedTable):
            self.clear()


def _require_empty_table(connection: psycopg.Connection) -> None:
    (exists,) = connection.execute("SELECT to_regclass('orders') IS NOT NULL").fetchone() or (False,)
    if exists and connection.execute("SELECT FROM orders LIMIT 1").fetchone() is not None:
        raise BenchFailed(
            "the table 'orders' of the given database is not empty; use a separate database, because a bench empties "
            "the table"
        )


def _local_postmaster(dsn: str, connection: psycopg.Connection) -> int | None:
    """The first process of a PostgreSQL on this machine."""
    if (urlsplit(dsn).hostname or "localhost") not in _LOCAL:
        return None
    with suppress(psutil.Error):
        parent = psutil.Process(connection.info.backend_pid).parent()
        # A PID from inside a container would identify another process here.
        return parent.pid if parent is not None and parent.name() == "postgres" else None
    return None
