"""The whole service works on each PostgreSQL that users have, directly and through PgBouncer in transaction mode."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from urllib.parse import urlsplit

import asyncpg
import pytest
from integration.scene import Scene, assert_right, document, ids
from integration.watching import all_stored_at_the_first_attempt
from proxy import Proxy
from servers.pgbouncer import temporary_pooler
from servers.postgres_sites import SITE_KINDS, Site, SiteKind
from support import INSERT_ORDER, becomes, closing_cli, connected, eventually, with_database

from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.operations.relay.relay import Relay
from ingest.operations.relay.rows import RowEnqueuer
from ingest.operations.relay.source_queues import SourceQueues
from ingest.queue.produce.producer import Producer
from ingest.store.connections.connection import is_behind_pooler
from ingest.store.orders.order_store import OrderStore
from ingest.store.outbox.outbox import Outbox
from ingest.store.outbox.outbox_schema import create_outbox
from ingest.store.schema import migrate, migrations
from ingest.telemetry.relay_metrics import RELAY_METRICS, RelayMetrics
from ingest.telemetry.shared_metrics import SharedMetrics

pytestmark = pytest.mark.long

TABLE = "order_outbox"
LINE = b'{"sku":"85123A","description":"WHITE HANGING HEART T-LIGHT HOLDER","quantity":6,"unit_price":"2.55"}'


@pytest.fixture(scope="module", params=SITE_KINDS, ids=lambda kind: kind.name)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    kind: SiteKind = request.param
    with kind.open() as site:
        yield site


@pytest.fixture
async def databases(site: Site) -> tuple[str, str]:
    """A new, empty database: where the service connects, and where the test looks."""
    name = f"own_{secrets.token_hex(6)}"
    async with connected(site.postgres.dsn) as sql:
        await sql.execute(f"CREATE DATABASE {name}")
    return with_database(site.dsn, name), with_database(site.postgres.dsn, name)


@pytest.fixture
async def scene(databases: tuple[str, str], redis_url: str, queue_name: str) -> AsyncIterator[Scene]:
    used, direct = databases
    await migrate(used, migrations())
    async with Scene.open(redis_url, direct, queue_name) as scene:
        yield scene


async def test_orders_whose_rows_others_have_locked_are_postponed_and_all_others_stored(
    databases: tuple[str, str], scene: Scene
) -> None:
    order_ids = ids(40)
    await scene.enqueue(order_ids[0])

    async with scene.worker(postgres_dsn=databases[0]), connected(databases[1]) as other:
        await scene.finished()
        async with other.transaction():
            await other.execute("SELECT FROM orders FOR UPDATE")
            await other.execute(INSERT_ORDER, order_ids[1])
            await scene.enqueue(*order_ids)
            await scene.stored_at_least(len(order_ids) - 1)
            await eventually(lambda: both_wait(scene))
        await scene.redis.zadd(scene.keys.retry, dict.fromkeys(await scene.redis.zrange(scene.keys.retry, 0, -1), 0))
        await scene.finished()

    assert_right(await scene.rows(), order_ids)


async def both_wait(scene: Scene) -> bool:
    return bool(await scene.redis.zcard(scene.keys.retry) == 2)


async def test_a_database_of_the_release_before_gets_the_key_with_the_source(databases: tuple[str, str]) -> None:
    used, direct = databases
    await migrate(used, migrations()[:3])
    async with connected(direct) as sql:
        await sql.execute(INSERT_ORDER, "a")

        await migrate(used, migrations())
        await migrate(used, migrations(), contract=True)

        key = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'orders_pkey'"
        assert await sql.fetchval(key) == "PRIMARY KEY (source, order_id)"
    async with OrderStore.open(used, "shop-de") as store:
        assert await store.some_stored(1) == []


async def test_a_pooler_is_recognized(site: Site) -> None:
    assert await is_behind_pooler(site.dsn) == (site.pooler is not None)


@pytest.mark.parametrize("chosen", [None, "pglz"])
async def test_long_orders_are_compressed_with_lz4_where_the_server_has_it_and_nobody_has_chosen(
    site: Site, databases: tuple[str, str], chosen: str | None
) -> None:
    used, direct = databases
    await migrate(used, migrations())
    async with connected(direct) as sql:
        methods = await sql.fetchval("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")
        if chosen is not None:
            database = urlsplit(direct).path.lstrip("/")
            await sql.execute(f"ALTER DATABASE {database} SET default_toast_compression = '{chosen}'")

        async with OrderStore.open(used) as store:
            body = document("long").replace(b'"lines":[', b'"lines":[' + b",".join([LINE] * 40) + b",")
            await store.upsert([OrderRow.of(decode_order(body, "long"), datetime.now(UTC), 1, 0.0)])

        used_method = await sql.fetchval("SELECT pg_column_compression(lines) FROM orders")
    has_lz4 = "lz4" in methods and site.pooler is None
    assert used_method == ("lz4" if has_lz4 and chosen is None else "pglz")


async def test_more_workers_than_connections_of_the_pool_store_every_order(
    databases: tuple[str, str], scene: Scene
) -> None:
    order_ids = ids(400)
    async with AsyncExitStack() as workers:
        for name in "abcd":
            await workers.enter_async_context(scene.worker(name, postgres_dsn=databases[0], batch_rows=10))

        await scene.enqueue(*order_ids)

        await all_stored_at_the_first_attempt(scene, order_ids)
    assert_right(await scene.rows(), order_ids)


async def test_workers_go_on_after_a_restart_of_postgresql_and_of_the_pooler(
    site: Site, databases: tuple[str, str], scene: Scene
) -> None:
    order_ids = ids(60)
    async with scene.worker(postgres_dsn=databases[0]):
        await scene.enqueue(*order_ids[:20])
        await scene.stored_at_least(20)

        await asyncio.to_thread(site.postgres.restart)
        await scene.enqueue(*order_ids[20:40])
        await scene.stored_at_least(40)
        if site.pooler is not None:
            await asyncio.to_thread(site.pooler.stop)
            await asyncio.to_thread(site.pooler.start)
        await scene.enqueue(*order_ids[40:])

        await all_stored_at_the_first_attempt(scene, order_ids)


@pytest.mark.parametrize("ignored", ["", "statement_timeout"])
async def test_a_pooler_that_is_put_in_between_later_is_noticed(
    site: Site, databases: tuple[str, str], scene: Scene, ignored: str
) -> None:
    order_ids = ids(40)
    with ExitStack() as stack:
        between = stack.enter_context(Proxy(site.postgres.port))
        through = databases[1].replace(f":{site.postgres.port}/", f":{between.port}/")
        async with scene.worker("a", postgres_dsn=through), scene.worker("b", postgres_dsn=through):
            await scene.enqueue(*order_ids[:20])
            await scene.stored_at_least(20)

            if site.pooler is not None:
                # Poolers are often configured to ignore unknown settings.
                settings = {"ignore_startup_parameters": ignored} if ignored else {}
                pooler = stack.enter_context(temporary_pooler(site.postgres, pool_size=1, settings=settings))
                await prepare_the_names_of_other_processes(pooler.dsn, databases[1])
                between.lead_to(pooler.port)
            await asyncio.to_thread(between.cut)

            for order_id in order_ids[20:]:
                await scene.enqueue(order_id)
            await all_stored_at_the_first_attempt(scene, order_ids)


async def prepare_the_names_of_other_processes(pooler: str, database: str) -> None:
    """Leave prepared statements in the server process, as clients leave them that are unaware of sharing it."""
    first = asyncpg.connection._uid
    names = [f"__asyncpg_stmt_{number:x}__" for number in range(first, first + 1_000)]
    async with connected(with_database(pooler, urlsplit(database).path.strip("/"))) as sql:
        await sql.execute(";".join(f'PREPARE "{name}" AS SELECT 1' for name in names))


@pytest.mark.parametrize("options", [(), ("--partitions", "4")])
async def test_the_commands_do_their_work(
    databases: tuple[str, str], scene: Scene, env: dict[str, str], options: tuple[str, ...]
) -> None:
    used, _ = databases
    order_ids = ids(5)
    async with scene.worker(postgres_dsn=used, keep_document="on"):
        await scene.enqueue(*order_ids)
        await scene.finished()

    with closing_cli({**env, "INGEST_POSTGRES_DSN": used}) as cli:

        async def said(*arguments: str) -> str:
            done = await asyncio.to_thread(cli.run, *arguments)
            assert done.returncode == 0, done.stderr
            return done.stdout

        await said("migrate", *options)
        assert '"stored": 5' in await said("status", "--json")
        assert '"unchanged": 5' in await said("remap", "--json")
        assert '"stored"' in await said("order", "show", order_ids[0], "--json")
        await said("order", "erase", order_ids[0], "--yes")
        assert '"clean": true' in await said("reconcile", *order_ids[1:], "--json")
    assert sorted(await scene.rows()) == order_ids[1:]


async def test_the_relay_announces_each_row_of_an_outbox_once(databases: tuple[str, str], scene: Scene) -> None:
    used, direct = databases
    await create_outbox(used, TABLE, None)
    stop = asyncio.Event()
    async with Producer.connect(scene.redis_url, scene.queue) as producer, connected(direct) as sql:
        relay = Relay(
            lambda: Outbox.open(used, TABLE),
            SourceQueues({"": RowEnqueuer(producer, 0)}),
            batch=50,
            poll_interval=0.05,
            metrics=RelayMetrics.on(SharedMetrics(RELAY_METRICS, 1)),
        )
        running = asyncio.create_task(relay.run(stop))
        order_ids = ids(120)
        await sql.executemany(f"INSERT INTO {TABLE} (order_id) VALUES ($1)", [(order_id,) for order_id in order_ids])

        await becomes(lambda: sql.fetchval(f"SELECT count(*) FROM {TABLE}"), 0)
        stop.set()
        await asyncio.wait_for(running, 20)
    entries = await scene.redis.xrange(scene.keys.stream)
    assert [fields[b"order_id"].decode() for _, fields in entries] == order_ids
