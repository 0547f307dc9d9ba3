"""The real `ingest relay` queues each row once, although it is killed repeatedly and both servers are restarted.

INGEST_TEST_RELAY=full moves 100,000 rows through 20 kills. Run it with `-s` for the figures.
"""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

import asyncpg
import pytest
from proxy import Proxy
from redis.asyncio import Redis
from support import Cli, Process, closing_cli, connected, eventually, fill

from ingest.lab.servers import EmbeddedServers
from ingest.lab.servers.server import free_port
from ingest.queue.layout.keys import Keys

FULL = os.environ.get("INGEST_TEST_RELAY") == "full"
ROWS, KILLS, BATCH = (100_000, 20, 500) if FULL else (1_500, 5, 50)
DEADLINE = 300.0 if FULL else 60.0


@pytest.fixture
async def shop_dsn(own_servers: EmbeddedServers, queue_name: str) -> AsyncIterator[str]:
    """A database on the servers that may be stopped."""
    name = queue_name.replace("-", "_")
    base, _, database = own_servers.postgres_dsn.rpartition("/")
    async with connected(own_servers.postgres_dsn) as sql:
        await sql.execute(f"CREATE DATABASE {name}")
    yield f"{base}/{name}"
    async with connected(f"{base}/{database}") as sql:
        await sql.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def shop_env(env: dict[str, str], own_servers: EmbeddedServers, shop_dsn: str) -> dict[str, str]:
    return {
        **env,
        "INGEST_REDIS_URL": own_servers.redis_url,
        "INGEST_OUTBOX_DSN": shop_dsn,
        "INGEST_OUTBOX_BATCH": str(BATCH),
    }


async def add_rows(sql: asyncpg.Connection, first: int, last: int) -> None:
    await sql.execute(
        "INSERT INTO order_outbox (order_id) SELECT 'A-' || n FROM generate_series($1::int, $2) n", first, last
    )


async def kill(process: Process) -> None:
    process.kill()
    await asyncio.to_thread(process.communicate)


async def stop(process: Process, number: signal.Signals = signal.SIGTERM) -> str:
    """Stop it and return its log."""
    process.send_signal(number)
    _, log = await asyncio.to_thread(process.communicate, timeout=30)
    assert process.returncode == 0, log
    return log


async def test_one_relay_moves_the_rows_of_all_sources(
    own_servers: EmbeddedServers, shop_dsn: str, shop_env: dict[str, str], queue_name: str, tmp_path: Path
) -> None:
    sources = tmp_path / "sources.toml"
    tables = (
        f'[sources.{name}]\nupstream = {{ url = "https://{name}.example/{{order_id}}" }}\n' for name in ("a", "b")
    )
    sources.write_text("".join(tables))
    with closing_cli({**shop_env, "INGEST_SOURCES": str(sources)}) as cli:
        assert cli.run("relay", "--create", "--no-role").returncode == 0
        async with connected(shop_dsn) as sql:
            await sql.execute(
                "INSERT INTO order_outbox (source, order_id)"
                " SELECT CASE WHEN n % 3 = 0 THEN 'a' ELSE 'b' END, n FROM generate_series(1, 30) AS n"
            )
        relay = cli.start("relay")
        for name, count in (("a", 10), ("b", 20)):
            await reaches(own_servers, Keys.of(f"{queue_name}/{name}").stream, count)
        log = await stop(relay)

    assert "relaying" in log


@pytest.mark.timeout(600 if FULL else 120)
async def test_each_row_is_queued_once_though_the_relay_is_killed_and_both_servers_restart(
    own_servers: EmbeddedServers, shop_dsn: str, shop_env: dict[str, str], queue_name: str
) -> None:
    stream = Keys.of(queue_name).stream
    started = time.monotonic()
    with closing_cli(shop_env) as cli:
        assert cli.run("relay", "--create", "--no-role").returncode == 0
        async with connected(shop_dsn) as sql:
            await add_rows(sql, 1, ROWS // 2)
        for number in range(1, KILLS + 1):
            relay = cli.start("relay")
            await reaches(own_servers, stream, ROWS * number // (KILLS + 2))
            if number == KILLS // 2:
                async with connected(shop_dsn) as sql:
                    await add_rows(sql, ROWS // 2 + 1, ROWS)
                await asyncio.to_thread(own_servers.postgres.stop, "immediate")
                await asyncio.to_thread(own_servers.postgres.start)
                await reaches(own_servers, stream, ROWS * number // (KILLS + 2) + 1)
            if number == KILLS // 2 + 1:
                await asyncio.to_thread(own_servers.valkey.kill)
                await asyncio.to_thread(own_servers.valkey.start)
            await kill(relay)
        relay = cli.start("relay")

        async def empty() -> bool:
            async with connected(shop_dsn) as sql:
                return not await sql.fetchval("SELECT count(*) FROM order_outbox")

        await eventually(empty, within=DEADLINE, every=0.1)
        await stop(relay)

    async with Redis.from_url(own_servers.redis_url) as redis:
        queued = [fields[b"order_id"].decode() for _, fields in await redis.xrange(stream)]
        await redis.delete(stream)
    print(f"\n{ROWS:,} rows, {KILLS} kills: {len(queued):,} entries in {time.monotonic() - started:.1f} s")  # noqa: T201
    assert queued == [f"A-{number}" for number in range(1, ROWS + 1)]


async def reaches(servers: EmbeddedServers, stream: str, count: int) -> None:
    """Wait until so many are queued: rows are then announced, and often not yet deleted."""
    async with Redis.from_url(servers.redis_url) as redis:

        async def enough() -> bool:
            return bool(await redis.xlen(stream) >= count)

        await eventually(enough, within=DEADLINE, every=0.002)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_the_relay_serves_metrics_and_ends_cleanly(
    shop_dsn: str, shop_env: dict[str, str], redis_url: str, number: signal.Signals
) -> None:
    port = free_port()
    with closing_cli({**shop_env, "INGEST_REDIS_URL": redis_url, "INGEST_RELAY_METRICS_PORT": str(port)}) as cli:
        assert cli.run("relay", "--create", "--no-role").returncode == 0
        async with connected(shop_dsn) as sql:
            await add_rows(sql, 1, 3)
        relay = cli.start("relay")
        # Rows are deleted before they are counted.
        told = await eventually(lambda: page_of_announced(port, 3))
        assert "ingest_relay_lag_seconds" in told
        log = await stop(relay, number)

    assert "relaying" in log
    assert shop_dsn.partition("@")[0].rpartition(":")[2] not in log, "no password"


async def page_of_announced(port: int, rows: int) -> str | None:
    """The page of metrics if it counts so many announced rows."""
    try:
        with await asyncio.to_thread(urlopen, f"http://127.0.0.1:{port}/metrics") as answer:
            page: str = answer.read().decode()
    except URLError:
        return None
    return page if f'ingest_relay_rows_total{{outcome="announced",source=""}} {rows}.0' in page else None


async def test_a_relay_whose_database_does_not_answer_ends_after_its_grace_period(
    own_servers: EmbeddedServers, shop_dsn: str, shop_env: dict[str, str]
) -> None:
    with Proxy(own_servers.postgres.port) as network, closing_cli(shop_env) as cli:
        assert cli.run("relay", "--create", "--no-role").returncode == 0
        dsn = through(network, shop_dsn)
        relay = cli.start("relay", env={"INGEST_OUTBOX_DSN": dsn, "INGEST_SHUTDOWN_GRACE": "0.5"})
        async with connected(shop_dsn) as sql:
            await add_rows(sql, 1, 1)

            async def empty() -> bool:
                return not await sql.fetchval("SELECT count(*) FROM order_outbox")

            await eventually(empty)
        network.freeze()

        await stop(relay)


async def test_a_second_request_ends_the_grace_period_of_a_relay(
    own_servers: EmbeddedServers, shop_dsn: str, shop_env: dict[str, str]
) -> None:
    with (
        Proxy(own_servers.postgres.port) as to_postgres,
        Proxy(own_servers.valkey.port) as to_redis,
        closing_cli(shop_env) as cli,
    ):
        assert cli.run("relay", "--create", "--no-role").returncode == 0
        servers = {
            "INGEST_OUTBOX_DSN": through(to_postgres, shop_dsn),
            "INGEST_REDIS_URL": through(to_redis, own_servers.redis_url),
        }
        to_redis.freeze()
        relay = cli.start("relay", env={**servers, "INGEST_SHUTDOWN_GRACE": "600"})
        async with connected(shop_dsn) as sql:
            await add_rows(sql, 1, 1)

            async def announces() -> bool:
                idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND state = 'idle in transaction'"
                return bool(await sql.fetchval(idle, urlsplit(shop_dsn).path[1:]))

            await eventually(announces)
        to_postgres.freeze()

        async def has_ended() -> bool:
            relay.send_signal(signal.SIGINT)
            return relay.poll() is not None

        await eventually(has_ended)
        _, log = await asyncio.to_thread(relay.communicate)

    assert "shutdown_forced" in log
    assert relay.returncode == 0


def through(network: Proxy, url: str) -> str:
    """A server's URL with its proxy in its place."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{account}{at}127.0.0.1:{network.port}"))


def test_a_relay_started_by_a_program_that_blocks_signals_stops_when_asked(cli: Cli) -> None:
    program = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM});"
        "os.execv(sys.executable, [sys.executable, '-m', 'ingest', 'relay'])"
    )
    relay = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**cli.env, "INGEST_OUTBOX_DSN": "postgresql://127.0.0.1:1/none"},
        stderr=subprocess.PIPE,
    )
    try:
        assert relay.stderr is not None
        assert b'"relaying"' in relay.stderr.readline()
        relay.send_signal(signal.SIGTERM)
        relay.communicate(timeout=60)

        assert relay.returncode == 0
    finally:
        relay.kill()
        relay.wait()


@asynccontextmanager
async def unread_relay(cli: Cli) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, int]]:
    """A relay whose log is not read, and both ends of the pipe of one page to which it logs."""
    unread, log = os.pipe()
    fcntl.fcntl(log, fcntl.F_SETPIPE_SZ, 4096)
    relay = await asyncio.create_subprocess_exec(sys.executable, "-m", "ingest", "relay", env=cli.env, stderr=log)
    try:
        yield relay, unread, log
    finally:
        if relay.returncode is None:
            relay.kill()
        os.close(unread)
        os.close(log)


async def test_a_relay_that_waits_for_the_reader_of_its_log_stops_when_asked(
    shop_dsn: str, shop_env: dict[str, str], redis_url: str
) -> None:
    with closing_cli({**shop_env, "INGEST_REDIS_URL": redis_url}) as cli:
        assert cli.run("relay", "--create", "--no-role").returncode == 0
        async with unread_relay(cli) as (relay, unread, log), connected(shop_dsn) as sql:
            assert b'"relaying"' in await asyncio.to_thread(os.read, unread, 4096)
            fill(log)
            await sql.execute("INSERT INTO order_outbox (order_id) VALUES ('no order ID ')")

            async def refused() -> bool:
                return bool(await sql.fetchval("SELECT count(*) FROM order_outbox WHERE error IS NOT NULL"))

            # It logs that next.
            await eventually(refused)
            relay.send_signal(signal.SIGTERM)

            assert await asyncio.wait_for(relay.wait(), 60) == 0


async def test_a_relay_that_is_refused_ends_though_nobody_reads_why(shop_env: dict[str, str], redis_url: str) -> None:
    with closing_cli({**shop_env, "INGEST_REDIS_URL": redis_url}) as cli:
        # There is room for the first line, that it begins, and no more.
        async with unread_relay(cli) as (relay, _, _):
            assert await asyncio.wait_for(relay.wait(), 20) == 1


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"INGEST_OUTBOX_DSN": "mysql://shop"}, "INGEST_OUTBOX_DSN"),
        ({"INGEST_OUTBOX_TABLE": 'x"; DROP TABLE y; --'}, "INGEST_OUTBOX_TABLE"),
        ({"INGEST_OUTBOX_BATCH": "0"}, "INGEST_OUTBOX_BATCH"),
        ({}, "INGEST_OUTBOX_DSN"),
    ],
)
def test_a_setting_that_cannot_be_used_ends_it_with_one_line(cli: Cli, settings: dict[str, str], names: str) -> None:
    done = cli.run("relay", env=settings)

    assert done.returncode == 2
    assert done.stderr.startswith(f"ingest: {names}: ")
    assert len(done.stderr.splitlines()) <= 3, done.stderr


def test_a_redis_that_cannot_confirm_what_is_asked_for_is_refused(cli: Cli) -> None:
    done = cli.run("relay", env={"INGEST_OUTBOX_DSN": "postgresql://127.0.0.1:1/x", "INGEST_DURABILITY": "fsync"})

    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("ingest: ")
    assert "fsync" in done.stderr


def test_the_sql_is_printed_without_any_server(cli: Cli) -> None:
    done = cli.run("relay", "--print-sql", env={"INGEST_OUTBOX_TABLE": "shop.outbox"})

    assert done.returncode == 0
    assert 'CREATE TABLE IF NOT EXISTS "shop"."outbox"' in done.stdout
    assert 'GRANT SELECT, DELETE, UPDATE (error) ON "shop"."outbox" TO "ingest_relay"' in done.stdout
