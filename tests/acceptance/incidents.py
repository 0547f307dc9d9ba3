"""The incidents that an operator has to recognize, each made with real servers, and the text by which each view names it."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import asyncpg
import pytest
from acceptance.commands import WorkerCommand, Workers
from aiohttp import web
from cluster_set import ClusterSet
from integration.scene import Scene, document
from integration.site import serving_routes
from servers.kinds import KINDS
from support import Cli, connected, eventually

from ingest.domain.partitions import Layout
from ingest.domain.source_name import queue_of
from ingest.lab.servers import EmbeddedServers
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.controls import controls_key

SHOP = "shop-de"


@dataclass
class Stage:
    """A deployment with one named source.

    Attributes:
        environment: of all commands.
        respond: the response of the shop.
        cluster: the nodes of Redis, if there are several.
    """

    scene: Scene
    cli: Cli
    servers: EmbeddedServers
    folder: Path
    workers: Workers
    environment: dict[str, str]
    shop_url: str = ""
    respond: Callable[[str], web.Response | None] = field(default=lambda order_id: good(order_id))  # noqa: PLW0108  defined below
    command: WorkerCommand | None = None
    cluster: ClusterSet | None = None
    numbers: int = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, servers: EmbeddedServers, cli: Cli, workers: Workers, queue: str, folder: Path
    ) -> AsyncIterator["Stage"]:
        async with AsyncExitStack() as stack:
            scene = await stack.enter_async_context(Scene.open_fragile(servers, queue))
            stage = cls(scene, cli, servers, folder, workers, {})

            async def order(request: web.Request) -> web.StreamResponse:
                response = stage.respond(request.match_info["order_id"])
                if response is None:
                    await asyncio.sleep(600)
                    return web.Response(status=500)
                return response

            stage.shop_url = await stack.enter_async_context(serving_routes({"/orders/{order_id}": order}))
            stage.environment |= {
                "INGEST_REDIS_URL": scene.redis_url,
                "INGEST_POSTGRES_DSN": scene.dsn,
                "INGEST_SOURCES": str(folder / "sources.toml"),
                "INGEST_STREAM": queue,
                "INGEST_PROCESSES": "1",
                "COLUMNS": "200",
            }
            stage.configure()
            yield stage

    async def use_cluster(self, stack: AsyncExitStack) -> None:
        """Use a cluster instead of a single Redis."""
        options = {"cluster_require_full_coverage": "no", "cluster_node_timeout": "60000"}
        folder = self.folder / "cluster"
        folder.mkdir()
        self.cluster = stack.enter_context(ClusterSet.open(KINDS[0], folder, replicas=0, **options))
        await self.cluster.become_ready()
        self.environment |= {"INGEST_REDIS_URL": self.cluster.url(), "INGEST_PARTITIONS": "6"}

    def configure(self, lines: str = "") -> None:
        """Write the sources file, with further lines of the source."""
        new = self.folder / "sources.new"
        new.write_text(f'[sources.{SHOP}]\n{lines}\nupstream.url = "{self.shop_url}/orders/{{order_id}}"\n')
        new.replace(self.folder / "sources.toml")

    async def start_worker(self) -> WorkerCommand:
        """Start a worker, which stores an order."""
        self.command = self.workers.start(
            **{name[7:].lower(): value for name, value in self.environment.items() if name.startswith("INGEST_")}
        )
        await self.command.says("ready")
        await self.enqueue(1)
        await eventually(self._has_stored)
        return self.command

    async def _has_stored(self) -> bool:
        return bool(await self.sql("SELECT FROM orders LIMIT 1"))

    async def enqueue(self, count: int = 20, code: int = 0) -> str:
        """Enqueue new orders."""
        new = [f"order-{self.numbers + number}" for number in range(count)]
        self.numbers += count
        return await self.run("enqueue", "--source", SHOP, *new, code=code)

    async def run(self, *arguments: str, code: int | None = None) -> str:
        """Run a command, and return its output."""
        done = await asyncio.to_thread(self.cli.run, *arguments, env=self.environment)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    async def exit_code(self, *arguments: str) -> int:
        """Run a command, and return its exit code."""
        return (await asyncio.to_thread(self.cli.run, *arguments, env=self.environment)).returncode

    async def sql(self, statement: str, *, dsn: str | None = None) -> list[asyncpg.Record]:
        """Run a statement as the administrator."""
        async with connected(dsn or self.scene.dsn) as connection:
            return list(await connection.fetch(statement))


def good(order_id: str) -> web.Response:
    """The response of a shop that works."""
    return web.Response(body=document(order_id), content_type="application/json")


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident.

    Attributes:
        state: the state of the source, or empty if the source works on.
        place: the source or the server by which views name it.
        cause: a regular expression of the cause.
        log: a regular expression of the event in the worker's log.
    """

    cause: Callable[[Stage], AbstractAsyncContextManager[None]]
    state: str
    place: str
    text: str
    log: str


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


@asynccontextmanager
async def full_disk(stage: Stage) -> AsyncIterator[None]:
    if os.getuid():
        pytest.skip("only root may mount a small disk")
    folder = Path(mkdtemp())
    await asyncio.to_thread(_run, "mount", "-t", "tmpfs", "-o", "size=2m,mode=777", "tmpfs", str(folder))
    try:
        (folder / "space").mkdir(mode=0o777)
        owner = (stage.servers.postgres.directory / "data").stat()
        os.chown(folder / "space", owner.st_uid, owner.st_gid)
        name = f"space_{stage.scene.queue.removeprefix('test-')}"
        await stage.sql(f"CREATE TABLESPACE {name} LOCATION '{folder / 'space'}'")
        await stage.sql(f"ALTER TABLE orders SET TABLESPACE {name}")
        await stage.sql("ALTER TABLE orders ALTER lines SET STORAGE EXTERNAL")
        filler = os.open(folder / "filler", os.O_CREAT | os.O_WRONLY)
        with suppress(OSError):
            while True:
                os.write(filler, b"0" * 4096)
        os.close(filler)
        await stage.enqueue(400)
        yield
        (folder / "filler").unlink()
        await stage.sql("ALTER TABLE orders SET TABLESPACE pg_default")
        await stage.sql(f"DROP TABLESPACE {name}")
    finally:
        await asyncio.to_thread(_run, "umount", "-l", str(folder))
        shutil.rmtree(folder, ignore_errors=True)


def locked(table: str) -> Callable[[Stage], AbstractAsyncContextManager[None]]:
    """Another session has locked this table."""

    @asynccontextmanager
    async def lock(stage: Stage) -> AsyncIterator[None]:
        if table == "audit_of_shop":
            await stage.sql("CREATE TABLE audit_of_shop (order_id text)")
            await stage.sql("GRANT ALL ON audit_of_shop TO PUBLIC")
            await stage.sql(
                "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN INSERT INTO audit_of_shop VALUES (NEW.order_id); RETURN NEW; END'"
            )
            await stage.sql(
                "CREATE TRIGGER audit BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION audit()"
            )
        async with connected(stage.scene.dsn) as other, other.transaction():
            await other.execute(f"LOCK TABLE {table}")
            await stage.enqueue()
            yield

    return lock


@asynccontextmanager
async def read_only(stage: Stage) -> AsyncIterator[None]:
    await stage.sql("ALTER SYSTEM SET default_transaction_read_only = on")
    await stage.sql("SELECT pg_reload_conf()")
    await stage.enqueue()
    try:
        yield
    finally:
        async with connected(stage.scene.dsn) as connection:
            await connection.execute("SET default_transaction_read_only = off")
            await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await connection.execute("SELECT pg_reload_conf()")


@asynccontextmanager
async def no_connections(stage: Stage) -> AsyncIterator[None]:
    database = stage.scene.dsn.rsplit("/", 1)[1].partition("?")[0]
    await stage.sql(f"ALTER DATABASE {database} CONNECTION LIMIT 0")
    await stage.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await stage.enqueue()
    try:
        yield
    finally:
        await stage.sql(f"ALTER DATABASE {database} CONNECTION LIMIT -1")


@asynccontextmanager
async def redis_full(stage: Stage) -> AsyncIterator[None]:
    async def slow_down() -> None:
        await stage.enqueue(200)

    await slow_down()
    used = (await stage.scene.redis.info("memory"))["used_memory"]
    await stage.scene.redis.config_set("maxmemory", int(used * 0.5))
    try:
        yield
    finally:
        await stage.scene.redis.config_set("maxmemory", 0)


def shop_that(respond: Callable[[str], web.Response | None]) -> Callable[[Stage], AbstractAsyncContextManager[None]]:
    """The shop responds like this."""

    @asynccontextmanager
    async def change(stage: Stage) -> AsyncIterator[None]:
        stage.respond = respond
        await stage.enqueue()
        yield

    return change


@asynccontextmanager
async def workers_gone(stage: Stage) -> AsyncIterator[None]:
    assert stage.command is not None
    await stage.command.stop()
    await stage.enqueue()
    yield


@asynccontextmanager
async def node_gone(stage: Stage) -> AsyncIterator[None]:
    assert stage.cluster is not None
    queue = queue_of(stage.scene.queue, SHOP)
    record = await stage.cluster.owner(Keys.of(queue).stream)
    # The controls of the deployment are on one of the nodes.
    controls = await stage.cluster.owner(controls_key(stage.scene.queue))
    owners = [controls, *[await stage.cluster.owner(Keys.of(each).stream) for each in Layout(queue, 6).queues]]
    next(node for node in owners if node is not record).kill()
    yield


@asynccontextmanager
async def paused(stage: Stage) -> AsyncIterator[None]:
    await stage.run("pause", "--source", SHOP, "--reason", "stocktaking", "--for", "1h", code=0)
    yield


def configured(lines: str) -> Callable[[Stage], AbstractAsyncContextManager[None]]:
    """The source has these further lines in the sources file."""

    @asynccontextmanager
    async def change(stage: Stage) -> AsyncIterator[None]:
        (stage.folder / "own.toml").write_text("[order")
        stage.configure(lines)
        yield

    return change


INCIDENTS: Mapping[str, Incident] = {
    "full disk": Incident(
        full_disk, "store_unavailable", "postgres", "No space left on device", r'"unavailable".*No space left'
    ),
    "lock on orders": Incident(
        locked("orders"), "store_unavailable", "postgres", r"locked the table orders", "locked the table orders"
    ),
    "lock on the history": Incident(
        locked("order_history"),
        "store_unavailable",
        "postgres",
        r"locked the table order_history",
        "locked the table order_history",
    ),
    "lock on a table of a trigger": Incident(
        locked("audit_of_shop"),
        "store_unavailable",
        "postgres",
        r"locked the table audit_of_shop",
        "locked the table audit_of_shop",
    ),
    "PostgreSQL read-only": Incident(
        read_only, "store_unavailable", "postgres", "read-only transaction", '"unavailable".*read-only'
    ),
    "no connections": Incident(
        no_connections, "store_unavailable", "postgres", "too many connections", '"unavailable".*too many connections'
    ),
    "Redis full": Incident(redis_full, "queue_unavailable", "redis", "maxmemory|full", "maxmemory"),
    "one Redis node gone": Incident(
        node_gone,
        "queue_unavailable",
        "redis 127.0.0.1:",
        "is unavailable|unavailable, partition",
        "reading_paused|partition_",
    ),
    "429 without Retry-After": Incident(
        shop_that(lambda _: web.Response(status=429)), "throttled", SHOP, "429", "throttling_began"
    ),
    "429 with Retry-After": Incident(
        shop_that(lambda _: web.Response(status=429, headers={"Retry-After": "60"})),
        "throttled",
        SHOP,
        "429",
        "throttling_began",
    ),
    "hanging shop": Incident(shop_that(lambda _: None), "", SHOP, "no response", "no_response"),
    "credential rejected": Incident(
        shop_that(lambda _: web.Response(status=401)), "circuit_open", SHOP, "HTTP 401", '"circuit_opened".*HTTP 401'
    ),
    "mapping rejected": Incident(
        configured('mapping = "own.toml"'), "rejected", SHOP, r"own\.toml", r'"sources_not_reloaded".*own\.toml'
    ),
    "secret missing": Incident(
        configured('upstream.token_file = "missing"'),
        "rejected",
        SHOP,
        "token_file",
        r'"sources_not_reloaded".*/missing',
    ),
    "API process behind the file": Incident(
        configured('webhook = { profile = "nonsense", secret_files = ["secret"] }'),
        "rejected",
        SHOP,
        r"sources\.toml.*webhook\.profile",
        "",
    ),
    "workers gone": Incident(workers_gone, "no_worker", SHOP, "no worker", ""),
    "source paused": Incident(paused, "paused", SHOP, "paused.*stocktaking", '"source_paused"'),
}
