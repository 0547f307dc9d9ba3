"""A failover that moves only new connections. A rejected client leaves the server, and finds the new one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from consumers import Consumer
from failover import Pair, Shard
from redis.asyncio import Redis
from servers.kinds import Kind
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import QueueUnavailable
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer

GROUP = "ingest"
QUEUE = "orders"
KEYS = Keys.of(QUEUE)


@pytest.fixture
async def pair(kind: Kind) -> AsyncIterator[Pair]:
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        Pair.open(kind.server(Path(folder) / "one"), kind.server(Path(folder) / "other")) as pair,
    ):
        await pair.attach()
        yield pair


@pytest.fixture
async def consumer(pair: Pair) -> AsyncIterator[Consumer]:
    async with Consumer.open(pair.url, QUEUE, GROUP, "one", 1.0) as consumer:
        await consumer.ensure_group()
        yield consumer


@pytest.fixture(params=["FAILOVER", "REPLICAOF"])
def change_roles(request: pytest.FixtureRequest, pair: Pair) -> Callable[[], Awaitable[None]]:
    async def changed() -> None:
        await (pair.hand_over() if request.param == "FAILOVER" else pair.promote())
        pair.lead()

    return changed


async def works(call: Callable[[], Awaitable[object]], refused: list[str]) -> bool:
    """Whether a call succeeds. The reason of a failure is recorded."""
    try:
        await call()
    except QueueUnavailable as error:
        refused.append(str(error))
        return False
    return True


async def test_what_was_refused_as_the_server_became_a_replica_succeeds_at_the_next_try(
    pair: Pair, consumer: Consumer, change_roles: Callable[[], Awaitable[None]]
) -> None:
    async with Producer.connect(pair.url, QUEUE) as producer:
        await producer.enqueue(["a", "b", "c", "d"])
    one, other, third, _ = await consumer.read(4, 1.0)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: consumer.heartbeat(5.0),
        lambda: consumer.ack([one.entry]),
        lambda: consumer.reschedule(other, 60.0, 2),
        lambda: consumer.dead_letter(third, DeadReason.REJECTED, "no"),
        lambda: consumer.move_due(10),
        lambda: consumer.read(1, 0.01),
    ]
    # As many connections of each kind as there will be.
    await asyncio.gather(*(consumer.heartbeat(5.0) for _ in range(4)))

    await change_roles()
    refused: list[str] = []
    for call in calls:
        # The pool may have had several connections, and each fails once.
        assert any([await works(call, refused) for _ in range(5)]), refused

    assert refused
    async with Redis.from_url(pair.primary.url) as redis:
        assert [fields[b"order_id"] for _, fields in await redis.xrange(KEYS.stream)] == [b"d"]
        assert await redis.zcard(KEYS.retry) == 1
        assert await redis.xlen(KEYS.dead) == 1


async def test_a_read_that_blocks_as_the_server_becomes_a_replica_goes_on_at_the_new_primary(
    pair: Pair, consumer: Consumer, change_roles: Callable[[], Awaitable[None]]
) -> None:
    reading = asyncio.create_task(consumer.read(1, 5.0))
    async with Redis.from_url(pair.primary.url) as redis:

        async def is_blocked() -> bool:
            return bool((await redis.info("clients"))["blocked_clients"])

        await eventually(is_blocked)

    await change_roles()
    with pytest.raises(QueueUnavailable, match="UNBLOCKED"):
        await reading
    async with Redis.from_url(pair.primary.url) as redis:
        await redis.xadd(KEYS.stream, {"order_id": "late"})

    assert [delivery.order_id for delivery in await consumer.read(1, 5.0)] == ["late"]


async def test_a_producer_goes_on_at_the_new_primary(pair: Pair, change_roles: Callable[[], Awaitable[None]]) -> None:
    told: list[str] = []
    async with Producer.connect(pair.url, QUEUE, on_wait=told.append) as producer:
        await producer.enqueue(["before"])

        await change_roles()
        async with asyncio.timeout(20):
            await producer.enqueue(["after"])

    assert told
    async with Redis.from_url(pair.primary.url) as redis:
        assert [fields[b"order_id"] for _, fields in await redis.xrange(KEYS.stream)] == [b"before", b"after"]


async def test_after_a_failover_within_a_cluster_of_one_shard_all_go_on_at_the_new_primary(kind: Kind) -> None:
    told: list[str] = []
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        Shard.open(
            kind.server(Path(folder) / "one", **Shard.options()), kind.server(Path(folder) / "other", **Shard.options())
        ) as shard,
    ):
        await shard.attach()
        async with (
            Consumer.open(shard.url, QUEUE, GROUP, "one", 1.0) as consumer,
            Producer.connect(shard.url, QUEUE, on_wait=told.append) as producer,
        ):
            await consumer.ensure_group()
            await producer.enqueue(["a", "b"])
            one, other = await consumer.read(2, 1.0)
            await consumer.ack([one.entry])

            await shard.hand_over()
            shard.lead()
            refused: list[str] = []
            for call in (
                lambda: consumer.heartbeat(5.0),
                lambda: consumer.ack([other.entry]),
                lambda: consumer.read(1, 0.01),
            ):
                assert any([await works(call, refused) for _ in range(5)]), refused
            async with asyncio.timeout(20):
                await producer.enqueue(["after"])

        async with Redis.from_url(shard.primary.url) as redis:
            assert [fields[b"order_id"] for _, fields in await redis.xrange(KEYS.stream)] == [b"after"]
    assert refused
    assert told
