"""PostgreSQL fails over: the store finds the server that takes writes, though the network moves only new connections."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import pytest
from contract.test_order_store import INSERTED, row
from proxy import Proxy
from servers.standby import Pair, primary_and_standby
from support import closing_cli, connected, eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import StoreUnavailable
from ingest.lab.servers import EmbeddedServers, PostgresServer
from ingest.store.connections.connection import Reconnecting
from ingest.store.orders.order_store import OrderStore
from ingest.store.orders.rows import overview

if TYPE_CHECKING:
    from ingest.domain.orders.order_row import OrderRow

pytestmark = pytest.mark.long


async def fail_over(pair: Pair) -> None:
    """Let the primary die, and the standby take over all it has stored."""
    await pair.catch_up()
    pair.primary.stop("immediate")
    await pair.promote()


def at(server: PostgresServer) -> str:
    return f"127.0.0.1:{server.port}"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with primary_and_standby() as pair:
        yield pair


@pytest.fixture(params=["direct", "pooled"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], OrderStore]]:
    """Opens a store, in both its ways of talking."""
    connections: list[Reconnecting] = []

    def open_store(dsn: str) -> OrderStore:
        connections.append(Reconnecting(dsn, pooled=request.param == "pooled"))
        return OrderStore(connections[-1])

    yield open_store
    for connection in connections:
        connection.close()


@pytest.fixture
def moving(pair: Pair) -> Iterator[Proxy]:
    """A name that leads to the primary at first."""
    with Proxy(pair.primary.port) as proxy:
        yield proxy


async def stored(store: OrderStore, order_id: str) -> list[Effect]:
    """Store an order as a worker does: again, until it is stored."""
    rows: Sequence[OrderRow] = [row(order_id)]

    async def attempt() -> list[Effect] | None:
        try:
            return await store.upsert(rows)
        except StoreUnavailable:
            return None

    effects = await eventually(attempt)
    assert effects is not None
    return effects


async def test_a_store_that_was_led_to_a_standby_finds_the_primary_as_soon_as_new_connections_do(
    pair: Pair, moving: Proxy, opened: Callable[[str], OrderStore]
) -> None:
    store = opened(pair.dsn(f"127.0.0.1:{moving.port}"))
    assert await stored(store, "a") == [INSERTED]
    moving.lead_to(pair.standby.port)
    moving.cut()
    with pytest.raises(StoreUnavailable, match=r"closed|reset|lost"):
        await store.upsert([row("b")])
    with pytest.raises(StoreUnavailable, match=r"read-only.*25006"):
        await store.upsert([row("b")])

    moving.lead_to(pair.primary.port)

    assert await stored(store, "b") == [INSERTED]


async def test_a_primary_that_takes_no_writes_any_more_is_left_for_the_one_that_does(
    pair: Pair, moving: Proxy, opened: Callable[[str], OrderStore]
) -> None:
    store = opened(pair.dsn(f"127.0.0.1:{moving.port}"))
    await stored(store, "a")
    await pair.promote()
    async with connected(pair.primary.dsn) as primary:
        await primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await primary.execute("SELECT pg_reload_conf()")
    moving.lead_to(pair.standby.port)
    order_ids = (f"b{number}" for number in count())

    # A session takes a setting up when it is signalled: a few writes may come first.
    async def one_at_the_promoted() -> bool:
        order_id = next(order_ids)
        assert await stored(store, order_id) == [INSERTED]
        async with connected(pair.standby.dsn) as promoted:
            return bool(await promoted.fetchval("SELECT count(*) FROM orders WHERE order_id = $1", order_id))

    await eventually(one_at_the_promoted)


@pytest.mark.parametrize("options", ["", "target_session_attrs=read-write"])
async def test_of_several_hosts_the_one_that_takes_writes_is_found_before_and_after_a_failover(
    pair: Pair, opened: Callable[[str], OrderStore], options: str
) -> None:
    store = opened(pair.dsn(at(pair.standby), at(pair.primary), options=options))
    assert await stored(store, "a") == [INSERTED]

    await fail_over(pair)

    assert await stored(store, "b") == [INSERTED]
    assert (await overview(pair.dsn(at(pair.primary), at(pair.standby), options=options))).stored == 2


async def test_hosts_that_are_named_as_options_are_tried_in_the_same_way(pair: Pair) -> None:
    ports = f"{pair.standby.port},{pair.primary.port}"
    store = Reconnecting(pair.dsn("", options=f"host=127.0.0.1,127.0.0.1&port={ports}"), pooled=False)

    assert await stored(OrderStore(store), "a") == [INSERTED]
    store.close()


async def test_a_host_that_is_gone_without_a_word_does_not_use_up_the_time_of_the_next(pair: Pair) -> None:
    with Proxy(pair.primary.port) as gone:
        gone.freeze()
        hosts = (f"127.0.0.1:{gone.port}", at(pair.primary))

        assert (await overview(pair.dsn(*hosts))).stored == 0


async def test_that_no_host_can_be_used_is_said_of_each(pair: Pair) -> None:
    pair.primary.stop("immediate")

    with pytest.raises(StoreUnavailable) as refused:
        await overview(pair.dsn(at(pair.primary), at(pair.standby)))

    assert at(pair.primary) in str(refused.value)
    assert f"{at(pair.standby)}: takes no writes (target_session_attrs)" in str(refused.value)
    assert pair.primary.password not in str(refused.value)


async def test_the_commands_take_several_hosts_and_show_no_password(
    pair: Pair, servers: EmbeddedServers, env: dict[str, str]
) -> None:
    both = pair.dsn(at(pair.standby), at(pair.primary), options="target_session_attrs=read-write")
    with closing_cli({**env, "INGEST_REDIS_URL": servers.redis_url, "INGEST_POSTGRES_DSN": both}) as cli:
        migrated = await asyncio.to_thread(cli.run, "migrate")
        status = await asyncio.to_thread(cli.run, "status", "--json")
        config = await asyncio.to_thread(cli.run, "config")

    assert migrated.returncode == 0, migrated.stderr
    assert status.returncode == 0, status.stderr
    assert pair.primary.password not in config.stdout
    assert at(pair.primary) in config.stdout
