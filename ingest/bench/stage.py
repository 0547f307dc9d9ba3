"""What every bench stands on: servers, the simulated external API, the service's commands and the bench's own programs.

    with stage() as on:
        on.migrate()
        api = on.api("--latency", "0.1-0.2")
        on.commands.configure({"INGEST_UPSTREAM_URL": api.url})
        on.clear()
        worker = on.commands.start("worker", "--processes", "2", "--metrics-port", "0")
        ...
        worker.stop(30)

Everything is under a watchdog: whatever ends this process, nothing of it stays behind.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
import tempfile
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import msgspec
import psutil
import redis

from ingest.bench.errors import BenchFailed
from ingest.bench.program import Program
from ingest.bench.usage import cpu_seconds
from ingest.demo.run.commands import Commands
from ingest.demo.run.gauges import ApiGauges, ApiStats
from ingest.lab.servers import ServerError, embedded_servers, sigterm_raises
from ingest.lab.servers.postgres import NO_SETTINGS
from ingest.lab.servers.valkey import NO_OPTIONS
from ingest.lab.servers.watchdog import Watchdog
from ingest.store.schema import migrate, migrations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ingest.demo.run.commands import Command
    from ingest.lab.servers import EmbeddedServers

STREAM = "orders"
FOREIGN_STREAM = "ingest-bench"
"""The queue's name on a server that is not ours alone."""

_OPEN_FILES = 16_384
_API_SECONDS_TO_STOP = 30.0
_LOCAL = {"127.0.0.1", "::1", "localhost"}


@contextmanager
def stage(
    *,
    durable: bool = True,
    redis_url: str | None = None,
    postgres_dsn: str | None = None,
    postgres_settings: Mapping[str, str] = NO_SETTINGS,
    valkey_options: Mapping[str, str] = NO_OPTIONS,
) -> Iterator[Stage]:
    """Set everything up; take everything down at the end, also on SIGTERM and Ctrl-C.

    Servers are embedded ones, unless they are given by URL. On a given Redis the queue is named `FOREIGN_STREAM`; in a given
    database the table of orders has to be empty, and is so again at the end.

    Args:
        durable: whether embedded servers keep their data in a crash of the machine, as in production.
        redis_url: a server to use instead of the embedded one.
        postgres_dsn: as `redis_url`.
        postgres_settings: of the embedded PostgreSQL.
        valkey_options: of the embedded Valkey.

    Raises:
        BenchFailed: a server does not start, goes away, or is not fit.
    """
    _allow_open_files()
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        stack.enter_context(sigterm_raises())
        stack.enter_context(_errors_in_one_line())
        servers = None
        if redis_url is None or postgres_dsn is None:
            servers = stack.enter_context(
                embedded_servers(durable=durable, postgres_settings=postgres_settings, valkey_options=valkey_options)
            )
        home = servers.directory / "bench" if servers else _private_directory(stack)
        ready = Stage(home, stack, servers, redis_url=redis_url, postgres_dsn=postgres_dsn)
        stack.callback(_ignore_signals)
        yield ready


class Stage:
    """The parts that a bench plays with; made by `stage`.

    Attributes:
        redis_url: of the Redis in use.
        postgres_dsn: of the PostgreSQL in use.
        stream: the queue's name, as in INGEST_STREAM.
        commands: starts the service's own commands; configured with both servers, the stream, and no /metrics.
        home: a private directory, gone at the end.
    """

    def __init__(
        self,
        home: Path,
        stack: ExitStack,
        servers: EmbeddedServers | None,
        *,
        redis_url: str | None,
        postgres_dsn: str | None,
    ) -> None:
        self.home = home
        self._stack = stack
        self._postgres_pid = servers.postgres.pid if servers and postgres_dsn is None else None
        self.redis_url = redis_url or (servers.redis_url if servers else "")
        self.postgres_dsn = postgres_dsn or (servers.postgres_dsn if servers else "")
        self.stream = STREAM if redis_url is None else FOREIGN_STREAM
        self.redis = stack.enter_context(closing(redis.Redis.from_url(self.redis_url)))
        if postgres_dsn is not None:
            self._refuse_if_used()
            self._postgres_pid = _local_postmaster(postgres_dsn)
        if redis_url is not None or postgres_dsn is not None:
            stack.callback(self._leave_clean)
        self._watchdog = stack.enter_context(Watchdog())
        self.commands = stack.enter_context(Commands(home))
        self.commands.configure(
            {
                "INGEST_REDIS_URL": self.redis_url,
                "INGEST_POSTGRES_DSN": self.postgres_dsn,
                "INGEST_STREAM": self.stream,
                "INGEST_METRICS_PORT": "0",
            }
        )
        self._apis = 0

    def migrate(self) -> None:
        """Make the service's tables."""
        asyncio.run(migrate(self.postgres_dsn, migrations()))

    def api(self, *options: str) -> Api:
        """Start a simulated external API in a process of its own, with options of `ingest upstream`; any ID has an order."""
        self._apis += 1
        # A home of its own: where its log begins, so that its URL is not one that another wrote.
        commands = self._stack.enter_context(Commands(self.home / f"api-{self._apis}"))
        command = commands.start("upstream", "--port", "0", "--any-id", *options)
        return Api(command.first_url(), command)

    def program(self, module: str, *arguments: str, **environment: str) -> Program:
        """Start `python -m MODULE` as a process of its own, with these environment variables."""
        program = Program(module, *arguments, environment=environment, home=self.home, watchdog=self._watchdog)
        self._stack.callback(program.kill)
        return program

    def clear(self) -> None:
        """Empty the table of orders and the queue, dead letters included: the next run finds what the first one found."""
        self.sql("TRUNCATE orders")
        with suppress(asyncpg.InsufficientPrivilegeError):
            self.sql("CHECKPOINT")
        for key in self.redis.scan_iter(f"ingest:{{{self.stream}}}:*", count=1000):
            self.redis.delete(key)

    def cpu(self) -> tuple[float, float | None]:
        """CPU seconds of Redis and of PostgreSQL so far; None for a PostgreSQL on another machine."""
        postgres = None if self._postgres_pid is None else cpu_seconds(self._postgres_pid)
        said: Any = self.redis.info("cpu")
        parts = ("used_cpu_user", "used_cpu_sys", "used_cpu_user_children", "used_cpu_sys_children")
        return sum(float(said[part]) for part in parts), postgres

    def sql(self, statement: str, *arguments: Any) -> list[Any]:
        """Run one statement over a connection of its own; return its rows."""
        return asyncio.run(_fetch(self.postgres_dsn, statement, *arguments))

    def _leave_clean(self) -> None:
        with suppress(asyncpg.UndefinedTableError):
            self.clear()

    def _refuse_if_used(self) -> None:
        exists = self.sql("SELECT to_regclass('orders') IS NOT NULL AS found")[0]["found"]
        if exists and self.sql("SELECT EXISTS (SELECT FROM orders) AS found")[0]["found"]:
            raise BenchFailed(
                "the table 'orders' of the given database is not empty: a bench empties it, so give it a database of its own"
            )


@dataclass(frozen=True, slots=True)
class Api:
    """A simulated external API.

    Attributes:
        url: for INGEST_UPSTREAM_URL.
    """

    url: str
    _command: Command

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._command.pid

    def stats(self) -> ApiStats:
        """What it has counted since the start or the last reset."""
        with closing(ApiGauges(self.url)) as gauges:
            stats = gauges.stats()
        if stats is None:
            raise self._command.failed("does not answer")
        return stats

    def requests_by_id(self) -> dict[str, int]:
        """How often each order was asked for."""
        said = msgspec.json.decode(self._ask("GET", "/stats"))
        return {str(order_id): int(count) for order_id, count in said["by_id"].items()}

    def behave(self, **changes: object) -> None:
        """Change its behaviour from the next request on: the options of `ingest upstream`, with underscores."""
        self._ask("PATCH", "/behaviour", msgspec.json.encode(changes))

    def reset(self) -> None:
        """Have it forget what it has counted."""
        with closing(ApiGauges(self.url)) as gauges:
            gauges.ask("DELETE", "/stats")  # answers 204, which `ask` takes for no answer

    def stop(self) -> None:
        """End it."""
        self._command.stop(_API_SECONDS_TO_STOP)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        with closing(ApiGauges(self.url)) as gauges:
            answer = gauges.ask(method, path, body)
        if answer is None:
            raise self._command.failed(f"refused {method} {path}")
        return answer


def order_ids(count: int, bundled: Collection[str]) -> list[str]:
    """So many IDs: bundled ones in their order, whose answers cost the API least, then made-up ones."""
    made_up = (f"BENCH-{number:07}" for number in range(1, count - len(bundled) + 1))
    return [*islice(bundled, count), *made_up]


async def _fetch(dsn: str, statement: str, *arguments: Any) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return list(await connection.fetch(statement, *arguments))
    finally:
        await connection.close()


def _local_postmaster(dsn: str) -> int | None:
    """The first process of a PostgreSQL on this machine."""
    if (urlsplit(dsn).hostname or "localhost") not in _LOCAL:
        return None
    backend = int(asyncio.run(_fetch(dsn, "SELECT pg_backend_pid() AS pid"))[0]["pid"])
    with suppress(psutil.Error):
        parent = psutil.Process(backend).parent()
        # In a container it has a pid that means another process here.
        return parent.pid if parent is not None and parent.name() == "postgres" else None
    return None


def _private_directory(stack: ExitStack) -> Path:
    home = Path(tempfile.mkdtemp(prefix="ingest-bench-"))
    stack.enter_context(Watchdog(removes=home))
    stack.callback(shutil.rmtree, home)
    return home / "bench"


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise BenchFailed(str(error)) from error
    except (redis.RedisError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise BenchFailed(f"a server of the bench cannot be used: {error}") from error


def _ignore_signals() -> None:
    """Take everything down undisturbed: it takes a moment, and whoever is impatient would make it longer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _allow_open_files() -> None:
    """Raise the soft limit of open files, which children inherit: an order in flight is a connection at both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
