"""Workers with a DSN of both hosts continue when the primary of PostgreSQL dies and its replica is promoted.

Synchronous replication loses no order. With asynchronous replication, orders are lost that were acked because their commit
was confirmed, and had not reached the replica: `ingest reconcile` names them.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass

import asyncpg
import pytest
from contract.test_order_store import row
from integration.scene import Scene, ids
from servers.standby import Pair, primary_and_standby
from support import Cli, connected, eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import StoreUnavailable
from ingest.lab.upstream import Behaviour
from ingest.store.connections.connection import Reconnecting
from ingest.store.orders.order_store import OrderStore

pytestmark = pytest.mark.long

ORDERS = 1_500
# The delay of the replica, which is about a continent away.
DELAY = 0.1


@dataclass(frozen=True)
class Replicated(Pair):
    """Both servers, with what workers and operators do."""

    @property
    def both(self) -> str:
        """Where workers connect: both, the replica first."""
        return self.dsn(f"127.0.0.1:{self.standby.port}", f"127.0.0.1:{self.primary.port}")

    async def replicate_synchronously(self) -> None:
        """From now on, a commit is confirmed when the replica has it on its disk."""
        async with connected(self.primary.dsn) as sql:
            await sql.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            await sql.execute("SELECT pg_reload_conf()")

            async def is_synchronous() -> bool:
                return bool(await sql.fetchval("SELECT sync_state = 'sync' FROM pg_stat_replication"))

            await eventually(is_synchronous)

    async def fail_over(self) -> None:
        """Kill the primary, with all that is between it and the replica, and promote the replica."""
        self.primary.kill()
        await asyncio.to_thread(self.between.cut)
        await self.promote()


@pytest.fixture
def pair() -> Iterator[Replicated]:
    with primary_and_standby() as pair:
        yield Replicated(pair.primary, pair.standby, pair.between)


@pytest.fixture
async def scene(pair: Replicated, redis_url: str, queue_name: str) -> AsyncIterator[Scene]:
    """The test inspects the database of the replica."""
    behaviour = Behaviour(any_id=True, latency="0.02-0.05")
    async with Scene.open(redis_url, pair.standby.dsn, queue_name, behaviour) as scene:
        yield scene


@pytest.mark.parametrize("replication", ["synchronous", "asynchronous"])
async def test_a_primary_is_killed_under_load(pair: Replicated, scene: Scene, cli: Cli, replication: str) -> None:
    if replication == "synchronous":
        await pair.replicate_synchronously()
    pair.between.delay(DELAY)
    order_ids = ids(ORDERS)
    async with scene.worker(postgres_dsn=pair.both, concurrency=20):
        await scene.enqueue(*order_ids)
        await scene.stored_at_least(ORDERS // 5, within=60)
        killed = time.monotonic()
        await pair.fail_over()
        promoted, had = time.monotonic(), await scene.stored()
        await scene.stored_at_least(had + 1)
        resumed = time.monotonic()
        await scene.finished(within=90)
    lost = set(order_ids) - (await scene.rows()).keys()

    print(  # noqa: T201  shown by pytest -s
        f"\n{replication}: {len(lost)} of {ORDERS} orders lost; promoted after {promoted - killed:.1f} s,"
        f" storing again {resumed - promoted:.1f} s later"
    )
    assert await scene.dead() == []
    if replication == "synchronous":
        assert lost == set()
    await names_what_is_lost(cli, pair, order_ids, lost)


async def test_with_synchronous_replication_nothing_is_acked_that_the_replica_does_not_have(
    pair: Replicated, scene: Scene
) -> None:
    await pair.replicate_synchronously()
    order_ids = ids(60)
    async with scene.worker(postgres_dsn=pair.both):
        await scene.enqueue(*order_ids[:30])
        await scene.stored_at_least(30)
        await scene.finished()
        await asyncio.to_thread(pair.between.freeze)
        await scene.enqueue(*order_ids[30:])
        await commits_wait(pair)
        assert await scene.pending_count() == 30

        await pair.fail_over()

        await scene.stored_at_least(60)
        await scene.finished()
    assert {row["attempts"] for row in (await scene.rows()).values()} == {1}


async def test_with_asynchronous_replication_what_the_replica_does_not_have_is_lost_and_can_be_announced_again(
    pair: Replicated, scene: Scene, cli: Cli
) -> None:
    order_ids = ids(60)
    async with scene.worker(postgres_dsn=pair.both):
        await scene.enqueue(*order_ids[:30])
        await scene.finished()
        await pair.catch_up()
        await asyncio.to_thread(pair.between.freeze)
        await scene.enqueue(*order_ids[30:])
        await scene.finished()

        await pair.fail_over()

        assert sorted(await scene.rows()) == sorted(order_ids[:30])
        await names_what_is_lost(cli, pair, order_ids, set(order_ids[30:]))
        await scene.enqueue(*order_ids[30:])
        await scene.stored_at_least(60)


async def commits_wait(pair: Replicated) -> None:
    """Wait until a commit of the worker waits for the replica."""
    async with connected(pair.primary.dsn) as sql:

        async def one_does() -> bool:
            with suppress(asyncpg.PostgresError):
                return bool(await sql.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
            return False

        await eventually(one_does)


async def names_what_is_lost(cli: Cli, pair: Replicated, announced: list[str], lost: set[str]) -> None:
    """Check that `ingest reconcile` finds them."""
    done = await asyncio.to_thread(
        cli.run, "reconcile", "-", "--json", stdin="\n".join(announced), env={"INGEST_POSTGRES_DSN": pair.both}
    )
    found = json.loads(done.stdout)
    assert (found["lost"]["count"], found["stored"]) == (len(lost), len(announced) - len(lost)), found
    assert set(found["lost"]["examples"]) <= lost


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
async def test_a_commit_whose_wait_for_the_replica_is_cancelled_does_not_count(
    pair: Replicated, *, pooled: bool
) -> None:
    await pair.replicate_synchronously()
    async with connected(pair.primary.dsn) as sql:
        await sql.execute("ALTER ROLE CURRENT_USER SET client_min_messages = 'error'")
    store = Reconnecting(pair.primary.dsn, pooled=pooled)
    await OrderStore(store).upsert([row("a")])
    await asyncio.to_thread(pair.between.freeze)
    storing = asyncio.create_task(OrderStore(store).upsert([row("b")]))
    await commits_wait(pair)

    # PostgreSQL confirms the commit then, with a warning.
    async with connected(pair.primary.dsn) as sql:
        await sql.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")

    with pytest.raises(StoreUnavailable, match="replica"):
        await storing
    await asyncio.to_thread(pair.between.thaw)
    assert await OrderStore(store).upsert([row("b")]) == [Effect.UNCHANGED]
    await pair.fail_over()
    async with connected(pair.standby.dsn) as sql:
        assert await sql.fetchval("SELECT count(*) FROM orders") == 2
    store.close()
