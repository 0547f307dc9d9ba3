"""A slow order stays with its worker while that lives, however eager others are, on each kind of server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from consumers import Consumer
from integration.holding import SPACE, Holder
from integration.scene import GROUP, Scene, assert_right, document, ids
from redelivery import claim_dead
from servers.kinds import KINDS, Kind
from support import eventually

from ingest.domain.deliveries.delivery import Effect, Heartbeat
from ingest.domain.errors import QueueUnavailable, StoreUnavailable
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.read.reader import BLOCK
from ingest.store.connection import Reconnecting
from ingest.store.orders.order_store import OrderStore

LIFETIME = 60.0


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
async def scene(request: pytest.FixtureRequest, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    kind: Kind = request.param
    with TemporaryDirectory(prefix="ingest-") as folder, kind.server(Path(folder) / "server") as server:
        async with Scene.open(server.url, dsn, queue_name) as scene:
            yield scene


# With slots to spare it looks for abandoned orders, and might take its own for such; with none it does nothing but renew.
@pytest.mark.parametrize("concurrency", [3, 10])
async def test_an_order_that_takes_ten_leases_is_fetched_once(scene: Scene, concurrency: int) -> None:
    scene.api.behave(latency="10.5")
    order_ids = ids(3)
    await scene.enqueue(*order_ids)

    lease = {"claim_idle": 1, "heartbeat_ttl": 3.0}
    async with scene.worker("slow", concurrency=concurrency, **lease) as slow:

        async def in_flight() -> bool:
            return scene.api.stats().requests == len(order_ids)

        await eventually(in_flight)
        async with scene.worker("eager", **lease) as eager, scene.worker("eager too", **lease) as eager_too:
            await scene.finished(within=30)

            for worker in (slow, eager, eager_too):
                assert worker.metric("ingest_redeliveries_total", reason="idle") == 0
                assert worker.metric("ingest_redeliveries_total", reason="dead_consumer") == 0
    assert scene.api.stats().by_id == dict.fromkeys(order_ids, 1)
    assert_right(await scene.rows(), order_ids)


async def test_orders_that_were_released_are_with_others_within_seconds(scene: Scene) -> None:
    scene.api.behave(hang_rate=1.0)
    order_ids = ids(20)
    await scene.enqueue(*order_ids)

    async with scene.worker("heir", claim_idle=3600, concurrency=1) as heir:

        async def is_busy() -> bool:
            return scene.api.stats().requests == 1

        await eventually(is_busy)
        async with scene.worker("leaver", claim_idle=3600) as leaver:

            async def all_in_hand() -> bool:
                return scene.api.stats().requests == len(order_ids)

            await eventually(all_in_hand)
            await leaver.stop(hurry=True)
        scene.api.behave(hang_rate=0.0)
        async with scene.worker("newcomer", claim_idle=3600, heartbeat_ttl=60.0) as newcomer:
            await scene.stored_at_least(len(order_ids) - 1, within=10)

            assert newcomer.metric("ingest_redeliveries_total", reason="dead_consumer") == 0
        assert heir.metric("ingest_orders_total", outcome="dead") == 0


# -- what a heartbeat tells of others ---------------------------------------------------------------------------


@dataclass
class Hand:
    """A monotonic clock whose hand the test moves, in seconds."""

    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at


class Deaf(Consumer):
    """Does not hear the replies to its next heartbeats, so many."""

    deaf_for = 0

    async def heartbeat(self, lifetime: float) -> Heartbeat:
        heartbeat = await super().heartbeat(lifetime)
        if self.deaf_for:
            self.deaf_for -= 1
            raise QueueUnavailable("the reply was lost")
        return heartbeat


async def is_taken_over_from(scene: Scene, name: str, heir: Consumer) -> None:
    """Let a heartbeat have ended, and another consumer reclaim all it was for."""
    await heir.heartbeat(LIFETIME)
    await scene.redis.zadd(scene.keys.standing, {heir.name: 0})
    await scene.redis.zadd(scene.keys.alive, {name: 1})
    assert await claim_dead(heir, 10)


@pytest.mark.parametrize("lost_replies", [0, 1, 3])
async def test_a_break_of_the_heartbeat_is_noticed_though_the_reply_that_told_it_was_lost(
    scene: Scene, lost_replies: int
) -> None:
    hand = Hand()
    await scene.enqueue("X")
    async with Deaf.open(scene.redis_url, scene.queue, GROUP, "deaf", BLOCK) as deaf, scene.consumer("heir") as heir:
        await deaf.ensure_group()
        holder = Holder(deaf, lifetime=LIFETIME, clock=hand)
        await holder.heartbeats.send()
        (delivery,) = await holder.read()
        await is_taken_over_from(scene, "deaf", heir)
        hand.at += LIFETIME + 1
        deaf.deaf_for = lost_replies

        await holder.heartbeats.send()
        await holder.heartbeats.confirm()

        assert not holder.holds(delivery)


async def test_a_heartbeat_in_time_lets_go_of_nothing(scene: Scene) -> None:
    hand = Hand()
    await scene.enqueue("X")
    async with scene.consumer("one") as one:
        holder = Holder(one, lifetime=LIFETIME, clock=hand)
        await holder.heartbeats.send()
        (delivery,) = await holder.read()

        for _ in range(5):
            hand.at += LIFETIME / 3
            await holder.heartbeats.send()
            await holder.heartbeats.confirm()

        assert holder.holds(delivery)


async def test_while_redis_is_unavailable_a_commit_need_not_wait_for_it(scene: Scene) -> None:
    hand = Hand()
    await scene.enqueue("X")
    async with Deaf.open(scene.redis_url, scene.queue, GROUP, "deaf", BLOCK) as deaf:
        await deaf.ensure_group()
        holder = Holder(deaf, lifetime=LIFETIME, clock=hand)
        await holder.heartbeats.send()
        (delivery,) = await holder.read()
        hand.at += LIFETIME + 1
        deaf.deaf_for = 10**9

        async with asyncio.timeout(5):
            await holder.heartbeats.confirm()

        assert holder.holds(delivery)


# -- what is stolen is not stored ---------------------------------------------------------------------------------


class Recording(OrderStore):
    """Remembers what it was asked to store; PostgreSQL is unavailable to it the first `away_for` times."""

    def __init__(self, connection: Reconnecting) -> None:
        super().__init__(connection)
        self.asked: list[list[str]] = []
        self.away_for = 0
        self.on_away: Callable[[], Awaitable[None]] = _nothing

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        self.asked.append([row.order_id for row in rows])
        if self.away_for:
            self.away_for -= 1
            await self.on_away()
            raise StoreUnavailable("the connection was closed")
        return await super().upsert(rows)


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("when", ["before the batch", "between two attempts"])
async def test_an_order_whose_lease_was_stolen_is_never_sent_to_the_database(scene: Scene, when: str) -> None:
    hand = Hand()
    await scene.enqueue("X")
    async with (
        Recording.open(scene.dsn) as store,
        scene.consumer("frozen") as frozen,
        scene.consumer("heir") as heir,
    ):
        holder = Holder(frozen, lifetime=LIFETIME, clock=hand)
        await holder.heartbeats.send()
        (delivery,) = await holder.read()

        async def be_frozen() -> None:
            await is_taken_over_from(scene, "frozen", heir)
            hand.at += LIFETIME + 1

        if when == "before the batch":
            await be_frozen()
        else:
            store.away_for, store.on_away = 1, be_frozen
        await holder.store([delivery], {"X": document("X")}, store)
        await holder.buffer.acquire(SPACE)  # all of it was released

        assert store.asked == ([] if when == "before the batch" else [["X"]])
    assert await scene.stored() == 0
    assert [entry.consumer for entry in await scene.pending()] == ["heir"]
