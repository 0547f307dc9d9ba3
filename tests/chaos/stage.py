"""The stage of a chaos run: real servers behind proxies, simulated shops, and the service's commands as processes.

The workers and the producers reach Redis, PostgreSQL and the API of each shop through a proxy for each. The final check, the control of
the APIs and foreign clients connect directly.
"""

import asyncio
import json
import os
import signal
import ssl
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, assert_never
from urllib.parse import urlsplit

import aiohttp
import psutil
from crash.power import POWERED, with_clock
from proxy import Proxy
from releases import kept

from chaos.cluster_side import ClusterSide
from chaos.disk import disk
from chaos.history import History
from chaos.plan import LAST_RELEASE, RedisKind
from chaos.redis_side import RedisSide, by_way_of, program
from chaos.sentinel_side import SentinelSide
from chaos.standalone_side import StandaloneSide
from chaos.written import OPTIONS, Written
from ingest.bench.certificate import Certificate
from ingest.domain.partitions import Layout
from ingest.domain.source_name import UNNAMED, queue_of
from ingest.lab.commands import Command
from ingest.lab.servers import POSTGRES_DURABLE, VALKEY_DURABLE, PostgresServer, ValkeyServer
from ingest.lab.watchdog import Watchdog
from ingest.queue.layout.keys import Keys

STREAM, GROUP = "orders", "ingest"
TOKEN = "chaos"
KILLED = "killed, as it did not stop"
# Much shorter than in production, so that events take seconds instead of minutes.
SETTINGS = {
    "INGEST_STREAM": STREAM,
    "INGEST_GROUP": GROUP,
    "INGEST_HEARTBEAT_TTL": "2",
    "INGEST_CLAIM_IDLE": "4",
    "INGEST_SHUTDOWN_GRACE": "5",
    "INGEST_CONCURRENCY": "50",
    "INGEST_BATCH_ROWS": "100",
    "INGEST_METRICS_PORT": "0",
    "INGEST_LOG_FORMAT": "json",
}
# The settings of the external API of each source.
UPSTREAM: dict[str, str | int] = {"token": TOKEN, "connect_timeout": 2, "read_timeout": 2, "timeout": 5}
# Optional features of a run, by the settings of the external API. The quota leaves room to catch up after a fault.
FEATURES: dict[str, dict[str, str | int]] = {
    "quota": {"rate": 400, "concurrency": 60},
    "bulk": {"bulk_size": 20},
    "https": {},
    LAST_RELEASE: {},
}
# The faults of the API on a usual day, none of which is the fault of an order.
USUAL = {
    "latency": "0.02-0.1",
    "error_rate": 0.01,
    "unavailable_rate": 0.005,
    "reset_rate": 0.005,
    "truncate_rate": 0.005,
    "hang_rate": 0.001,
    "retry_after": 1,
    "token": TOKEN,
    "any_id": True,
}
_CURRENCIES = ("GBP", "EUR", "NOK")
_TIMEOUT = 60.0
_TREE = "PYTHONPATH"
THIS_RELEASE: Mapping[str, str] = MappingProxyType({})


class WorkerCommand(Command):
    """One `ingest worker` process with all its children and its own log file."""

    def ask_to_stop(self) -> None:
        self.signal(signal.SIGTERM)

    def children(self) -> list[psutil.Process]:
        """Its worker processes in a fixed order, without the process that reads the settings at the start."""
        started = {event["pid"] for event in events_of(self.log) if event["event"] == "process_started"}
        try:
            children = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return sorted((child for child in children if child.pid in started), key=lambda child: child.pid)


@dataclass(frozen=True)
class Shop:
    """One source with its simulated API.

    Attributes:
        name: of the source. Empty if it is the only one, which is then described by environment variables.
        currency: of its orders, by which orders with the same ID differ between shops.
        proxy: on the way of the workers to the API.
        layout: the partitions of its queue.
    """

    name: str
    currency: str
    api: "Api"
    proxy: Proxy
    layout: Layout

    @property
    def partitions(self) -> list[Keys]:
        """The keys of each partition of its queue."""
        return [Keys.of(queue, GROUP) for queue in self.layout.queues]


@dataclass
class Stage:
    """All parts that can be observed or damaged.

    Attributes:
        home: the folder of all data and logs.
        shops: the sources of all orders.
        workers: the worker commands that should be running.
        exits: the number of exits of worker commands by description, without commands killed as a fault.
        written: the entries that failovers have lost.
    """

    home: Path
    postgres: PostgresServer
    redis: RedisSide
    postgres_proxy: Proxy
    processes: int
    _commands: ExitStack
    _watchdog: Watchdog
    shops: list[Shop] = field(default_factory=list)
    workers: list[WorkerCommand] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)
    written: Written = field(default_factory=Written)

    def __post_init__(self) -> None:
        self.history = History(self.home / "history")

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    def prepare(self, seed: int, sources: int, partitions: int, features: Collection[str] = ()) -> None:
        """Create the tables and start the API of each source. The workers use these features, and queues with that many partitions."""
        self._configure(
            {
                **SETTINGS,
                "INGEST_PARTITIONS": str(partitions),
                "INGEST_REDIS_URL": self.redis.url,
                "INGEST_POSTGRES_DSN": by_way_of(self.postgres_proxy, self.postgres.dsn),
            }
        )
        if LAST_RELEASE in features:
            # As in production, where parts that only the last release needs are removed later.
            self._start("migrate", log="migrate-last", release=kept.unpack(self.home / LAST_RELEASE)).finish()
        migrate = self._start("migrate", log="migrate")
        certificate = self._certificate() if "https" in features else None
        names = [f"shop-{number}" for number in range(1, sources + 1)] if sources > 1 else [UNNAMED]
        settings = {name: self._open_shop(name, seed, partitions, certificate, features) for name in names}
        migrate.finish()
        if sources > 1:
            self._configure({"INGEST_SOURCES": str(self._sources_file(settings))})
        else:
            self._configure({f"INGEST_UPSTREAM_{key.upper()}": str(value) for key, value in settings[UNNAMED].items()})

    def _open_shop(
        self, name: str, seed: int, partitions: int, certificate: Certificate | None, features: Collection[str]
    ) -> dict[str, str | int]:
        """Start the API of a source, and return the settings of it."""
        of_tls = certificate.api_options() if certificate else []
        upstream = self._start("upstream", "--port=0", f"--seed={seed}", *of_tls, log=f"api-{name}" if name else "api")
        url = upstream.first_url()
        currency = _CURRENCIES[len(self.shops) % len(_CURRENCIES)]
        api = Api(url.partition("/orders/")[0], currency, certificate.authority if certificate else None)
        note = partial(self.history.note_requests, name)
        proxy = self._commands.enter_context(Proxy(urlsplit(url).port or 0, note))
        shop = Shop(name, currency, api, proxy, Layout(queue_of(STREAM, name), partitions))
        self.shops.append(shop)
        settings = UPSTREAM | {"url": by_way_of(shop.proxy, url)}
        for feature in features:
            settings |= FEATURES[feature]
        if "bulk" in features:
            settings["bulk_url"] = str(settings["url"]).replace("/{order_id}", "?ids={order_ids}")
        if certificate is not None:
            settings["ca_file"] = str(certificate.authority)
        return settings

    def _sources_file(self, settings: Mapping[str, Mapping[str, str | int]]) -> Path:
        file = self.logs / "sources.toml"
        file.touch(mode=0o600)
        with file.open("a") as lines:
            for name, values in settings.items():
                lines.write(f"[sources.{name}.upstream]\n")
                lines.writelines(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        return file

    def start_worker(self, release: Mapping[str, str] = THIS_RELEASE) -> WorkerCommand:
        """Start an additional worker command, with the variables that select its release."""
        number = len(list(self.logs.glob("worker-*.log"))) + 1
        command = self._start("worker", f"--processes={self.processes}", log=f"worker-{number:03}", release=release)
        self.workers.append(command)
        return command

    async def heal(self) -> None:
        """Wait until Redis is complete, so that the next fault meets replicas that have everything, and note the lost entries."""
        await self.redis.heal()
        # No server copies a whole other one from here on, so that each replica writes what its primary writes.
        entries = self.written.read(self.redis.servers)
        await self.redis.heal()
        self.written.read(self.redis.servers)
        self.written.decide(entries, await self.redis.keepers())

    def await_end(self, command: WorkerCommand, within: float) -> str:
        """Wait for a worker command to end after a stop request or without its supervisor, or else kill it."""
        if not command.has_ended(within):
            command.kill()
            how = KILLED
        elif command.exit_code == -signal.SIGKILL:
            how = "by itself, without a supervisor"
        else:
            how = f"exit code {command.exit_code}"
        self.exits[how] += 1
        return how

    def events(self) -> Iterator[dict[str, Any]]:
        """All log events of the workers. A line that is not an event is named `unreadable`."""
        for log in sorted(self.logs.glob("worker-*.log")):
            yield from events_of(log)

    def _certificate(self) -> Certificate:
        """Of all APIs, which the workers trust."""
        folder = self.home / "certificate"
        folder.mkdir(mode=0o700)
        return Certificate.issue(folder)

    def _start(self, *arguments: str, log: str, release: Mapping[str, str] = THIS_RELEASE) -> WorkerCommand:
        command = WorkerCommand(
            *arguments,
            log=self.logs / f"{log}.log",
            home=self.logs,
            watchdog=self._watchdog,
            # The commands get the path of this source tree, and no other variable of the environment.
            environment={name: os.environ[name] for name in (_TREE,) if name in os.environ}
            | dict(release)
            | (with_clock(self.logs / f"{log}.clock") if POWERED else {}),
        )
        self._commands.callback(command.kill)
        return command

    def _configure(self, settings: dict[str, str]) -> None:
        file = self.logs / ".env"
        file.touch(mode=0o600)
        with file.open("a") as lines:
            lines.writelines(f"{name}='{value}'\n" for name, value in settings.items())


def events_of(log: Path) -> Iterator[dict[str, Any]]:
    """All log events of one command. A line that is not an event is named `unreadable`."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            yield json.loads(line) | {"log": log.name}
        except json.JSONDecodeError:
            yield {"event": "unreadable", "line": line, "log": log.name}


class Api:
    """Controls a simulated API and reads its counters."""

    def __init__(self, url: str, currency: str, ca_file: Path | None) -> None:
        self._url = url
        self._usual = USUAL | {"currency": currency}
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cafile=self._ca_file) if self._ca_file else True
        self._session = aiohttp.ClientSession(self._url, connector=aiohttp.TCPConnector(ssl=tls))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def behave(self, **changes: object) -> None:
        """Behave as on a usual day, but for these changes."""
        await self._ask("PUT", "/behaviour", json=self._usual | changes)

    async def put(self, order_id: str, document: bytes) -> None:
        """Serve this document for an order."""
        await self._ask("PUT", f"/orders/{order_id}", data=document)

    async def delete(self, order_id: str) -> None:
        """Have no such order."""
        await self._ask("DELETE", f"/orders/{order_id}")

    async def stats(self) -> dict[str, Any]:
        """Its counters."""
        return json.loads(await self._ask("GET", "/stats"))

    async def _ask(self, method: str, path: str, **options: Any) -> bytes:
        assert self._session is not None
        async with asyncio.timeout(_TIMEOUT), self._session.request(method, path, **options) as response:
            answer = await response.read()
            assert response.ok, f"{method} {path}: {response.status} {answer[:200]!r}"
            return answer


@contextmanager
def open_stage(home: Path, processes: int, redis_server: Path | None, redis_kind: RedisKind) -> Iterator[Stage]:
    """The stage with running servers. At the end of the block, only the folder remains, however this process ends.

    Args:
        home: a folder that does not exist yet.
        processes: worker processes of each command.
        redis_server: the program to use for Redis, by default the embedded Valkey.
        redis_kind: how Redis runs.
    """
    home.mkdir(mode=0o711)  # PostgreSQL runs as another user
    with ExitStack() as stack:
        stack.enter_context(disk(home / "disk"))
        postgres = stack.enter_context(PostgresServer(home / "disk" / "postgres", settings=POSTGRES_DURABLE))
        redis: RedisSide
        match redis_kind:
            case RedisKind.STANDALONE:
                options = {**VALKEY_DURABLE, **OPTIONS, "repl-diskless-sync-delay": "0"}
                for name in ("redis", "replica"):
                    stack.enter_context(disk(home / name))
                binary = program(redis_server, home).binary
                primary, replica = (
                    ValkeyServer(home / name, binary=binary, options=options) for name in ("redis", "replica")
                )
                stack.enter_context(primary)
                redis = stack.enter_context(StandaloneSide.open(primary, replica))
            case RedisKind.SENTINEL:
                redis = stack.enter_context(SentinelSide.open(home / "watched", redis_server))
            case RedisKind.CLUSTER:
                redis = stack.enter_context(ClusterSide.open(home / "cluster", redis_server))
            case _:
                assert_never(redis_kind)
        (home / "logs").mkdir(mode=0o700)
        postgres_proxy = stack.enter_context(Proxy(postgres.port))
        watchdog = stack.enter_context(Watchdog())
        commands = stack.enter_context(ExitStack())
        yield Stage(home, postgres, redis, postgres_proxy, processes, commands, watchdog)
