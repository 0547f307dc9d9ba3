"""The queue keeps its guarantees next to other groups, on servers of all kinds, with few rights, and after a restart."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from consumers import Consumer
from redelivery import MOST, as_read, claim_idle, refs
from redis.asyncio import Redis
from servers.kinds import Kind

from ingest.domain.deliveries.delivery import DeadReason
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.scripts import has_xnack

pytestmark = pytest.mark.each_server

GROUP = "ingest"
NOW = 0.001
LEASE = 3600.0


@asynccontextmanager
async def connect(url: str, queue: str, name: str) -> AsyncIterator[Consumer]:
    async with Consumer.open(url, queue, GROUP, name, block=1.0) as consumer:
        await consumer.ensure_group()
        yield consumer


@pytest.fixture
async def consumer(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with connect(redis_url, queue_name, "one") as consumer:
        yield consumer


async def add(redis: Redis, keys: Keys, *order_ids: str) -> list[str]:
    return [(await redis.xadd(keys.stream, {"order_id": order_id})).decode() for order_id in order_ids]


async def left(redis: Redis, keys: Keys) -> list[str]:
    """The entries of the stream."""
    return [entry_id.decode() for entry_id, _ in await redis.xrange(keys.stream)]


async def read_by_the_other(redis: Redis, keys: Keys, count: int) -> list[str]:
    """The entries that a reader of a second group receives."""
    reply = await redis.xreadgroup("audit", "auditor", {keys.stream: ">"}, count=count)
    return [entry_id.decode() for _, entries in reply for entry_id, *_ in entries]


# -- a second group ---------------------------------------------------------------------------------------------


async def test_a_group_that_is_gone_holds_nothing_back(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.xgroup_create(keys.stream, "audit", id="0")
    entry_ids = await add(redis, keys, *"abc")
    await consumer.read(2, NOW)
    await consumer.ack(refs(keys, entry_ids[:2]))
    await redis.xgroup_destroy(keys.stream, "audit")

    await consumer.trim(MOST)

    assert await left(redis, keys) == entry_ids[2:]


async def test_what_was_released_is_not_trimmed(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.xgroup_create(keys.stream, "audit", id="0")
    entry_ids = await add(redis, keys, *"ab")
    await consumer.read(2, NOW)
    await read_by_the_other(redis, keys, 2)
    await redis.xack(keys.stream, "audit", *entry_ids)
    await consumer.ack(refs(keys, entry_ids[1:]))
    await consumer.release(await as_read(redis, keys, entry_ids[:1]))

    await consumer.trim(MOST)

    assert entry_ids[0] in await left(redis, keys)


@pytest.mark.parametrize("sequence", [9, 10, 2**53, 2**63 + 1025, 2**64 - 2, 2**64 - 1])
async def test_numbers_of_any_length_in_an_id_are_exact(
    consumer: Consumer, redis: Redis, keys: Keys, sequence: int
) -> None:
    first, second = f"5-{sequence}", f"5-{sequence + 1}" if sequence < 2**64 - 1 else "6-0"
    for entry_id in (first, second, "10-1"):
        await redis.xadd(keys.stream, {"order_id": "a"}, id=entry_id)
    await redis.xgroup_create(keys.stream, "audit", id="10-1")
    await consumer.read(1, NOW)
    await consumer.ack(refs(keys, [first]))

    await consumer.trim(MOST)

    assert await left(redis, keys) == [second, "10-1"]


# -- capabilities of the server ----------------------------------------------------------------------------------------


async def test_what_a_server_can_is_found_out_without_leaving_a_trace(redis: Redis, kind: Kind, keys: Keys) -> None:
    before = set(await redis.keys())

    assert await has_xnack(redis, keys.probe) == kind.is_redis_since(8, 8)

    assert set(await redis.keys()) <= before


async def test_what_an_acl_forbids_is_done_without(
    own_valkey: ValkeyServer, own_redis: Redis, kind: Kind, keys: Keys
) -> None:
    forbidden = ["-xnack"] if kind.is_redis_since(8, 8) else []
    await own_redis.acl_setuser(
        "limited",
        enabled=True,
        passwords=["+secret"],
        keys=["ingest:*"],
        commands=["+@all", *forbidden],
    )
    url = own_valkey.url.replace(f":{own_valkey.password}@", "limited:secret@")

    async with Redis.from_url(url) as limited:
        is_found = await has_xnack(limited, keys.probe)
    async with connect(url, "queue", "one") as consumer:
        queue = Keys.of("queue")
        entry_ids = await add(own_redis, queue, *"abc")
        acked, dead_lettered, given_back = await consumer.read(3, NOW)
        done = [
            await consumer.ack([acked.entry]),
            await consumer.dead_letter(dead_lettered, DeadReason.REJECTED, "no"),
            await consumer.release([given_back]),
        ]
        taken = await claim_idle(consumer, 10, LEASE)

    assert not is_found
    assert done == [1, True, 1]
    assert [(delivery.entry.id, delivery.count) for delivery in taken] == [(entry_ids[2], 1)]


# -- a restart --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewritten", [False, True])
async def test_what_was_released_stays_so_when_the_server_restarts(
    kind: Kind, queue_name: str, keys: Keys, *, rewritten: bool
) -> None:
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        kind.server(Path(folder) / "server", appendonly="yes", appendfsync="always") as server,
    ):
        async with Redis.from_url(server.url) as redis, connect(server.url, queue_name, "one") as one:
            entry_ids = await add(redis, keys, *"abc")
            await one.read(3, NOW)
            await redis.xclaim(keys.stream, GROUP, "one", 0, [entry_ids[1]], retrycount=4, justid=True)
            await one.release(await as_read(redis, keys, entry_ids[:2]))
            if rewritten:
                await redis.bgrewriteaof()

        server.restart()

        async with connect(server.url, queue_name, "newcomer") as newcomer:
            await newcomer.heartbeat(60)
            taken = [*await claim_idle(newcomer, 10, LEASE), *await newcomer.read(10, NOW)]

    assert sorted((delivery.entry.id, delivery.count) for delivery in taken) == [(entry_ids[0], 1), (entry_ids[1], 4)]
