"""What stays in memory, what deleting frees, and what happens when there is none left."""

import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError, ResponseError
from support import eventually

from ingest.lab.servers import ValkeyServer

pytestmark = pytest.mark.each_server

GROUP = "g"


async def fill(redis: Redis, stream: str, count: int) -> list[bytes]:
    async with redis.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.xadd(stream, {"order_id": f"{number:06}"})
        return await pipe.execute()


async def lag(redis: Redis, stream: str) -> int | None:
    [group] = await redis.xinfo_groups(stream)
    return group["lag"]


async def size(redis: Redis, stream: str) -> int:
    return int(await redis.memory_usage(stream, samples=0))


async def nodes(redis: Redis, stream: str) -> int:
    return (await redis.xinfo_stream(stream))["radix-tree-keys"]


# -- what stays ---------------------------------------------------------------------------------------------------


async def test_an_acked_entry_stays_until_it_is_deleted(redis: Redis, queue_name: str) -> None:
    await redis.xgroup_create(queue_name, GROUP, "0", mkstream=True)
    [entry_id] = await fill(redis, queue_name, 1)
    await redis.xreadgroup(GROUP, "c", {queue_name: ">"})

    await redis.xack(queue_name, GROUP, entry_id)
    after_ack = await redis.xlen(queue_name)
    await redis.xdel(queue_name, entry_id)

    assert (after_ack, await redis.xlen(queue_name)) == (1, 0)


async def test_trimming_to_a_length_deletes_unread_and_pending_work(redis: Redis, queue_name: str) -> None:
    await redis.xgroup_create(queue_name, GROUP, "0", mkstream=True)
    await fill(redis, queue_name, 5)
    await redis.xreadgroup(GROUP, "c", {queue_name: ">"}, count=2)

    await redis.xadd(queue_name, {"order_id": "new"}, maxlen=1, approximate=False)

    [[_, unread]] = await redis.xreadgroup(GROUP, "c", {queue_name: ">"})
    assert [fields for _, fields in unread] == [{b"order_id": b"new"}]
    [[_, own]] = await redis.xreadgroup(GROUP, "c", {queue_name: "0"}, count=2)
    assert not any(fields for _, fields in own)


async def test_a_few_entries_left_among_deleted_ones_hold_the_memory(redis: Redis, queue_name: str) -> None:
    entry_ids = await fill(redis, queue_name, 10_000)
    full = await size(redis, queue_name)

    await redis.xdel(queue_name, *(entry_id for number, entry_id in enumerate(entry_ids) if number % 100))
    scattered = await size(redis, queue_name)
    held = await nodes(redis, queue_name)
    await redis.xdel(queue_name, *entry_ids)

    assert held == 100
    assert scattered > full / 2  # of one percent of the entries
    assert await size(redis, queue_name) < full / 20


async def test_an_entry_takes_about_twenty_bytes_and_a_pending_one_a_hundred_or_two_more(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    async def used() -> int:
        async def is_alone() -> bool:
            return len(await own_redis.client_list()) == 1  # clients' buffers count as well

        await eventually(is_alone)
        return int((await own_redis.info("memory"))["used_memory"])

    await own_redis.xgroup_create("s", GROUP, "0", mkstream=True)
    empty = await used()

    async with Redis.from_url(own_valkey.url) as client:
        await fill(client, "s", 20_000)
    unread = await used()
    async with Redis.from_url(own_valkey.url) as client:
        await client.xreadgroup(GROUP, "c", {"s": ">"})
    read = await used()

    assert 10 < (unread - empty) / 20_000 < 50
    assert 50 < (read - unread) / 20_000 < 300


# -- lag ----------------------------------------------------------------------------------------------------------


async def test_deleting_read_entries_in_order_keeps_the_lag_right(redis: Redis, queue_name: str) -> None:
    await redis.xgroup_create(queue_name, GROUP, "0", mkstream=True)
    entry_ids = await fill(redis, queue_name, 10)
    await redis.xreadgroup(GROUP, "c", {queue_name: ">"}, count=4)

    lags = []
    for entry_id in entry_ids[:4]:
        await redis.xack(queue_name, GROUP, entry_id)
        await redis.xdel(queue_name, entry_id)
        lags.append(await lag(redis, queue_name))

    assert lags == [6] * 4


async def test_deleting_an_unread_entry_makes_the_lag_unknown(redis: Redis, queue_name: str) -> None:
    await redis.xgroup_create(queue_name, GROUP, "0", mkstream=True)
    entry_ids = await fill(redis, queue_name, 10)
    await redis.xreadgroup(GROUP, "c", {queue_name: ">"}, count=4)

    await redis.xdel(queue_name, entry_ids[7])

    assert await lag(redis, queue_name) is None


# -- no memory left -----------------------------------------------------------------------------------------------


async def test_at_the_memory_limit_xadd_fails_while_reads_and_acks_go_on(own_redis: Redis) -> None:
    await own_redis.xgroup_create("s", GROUP, "0", mkstream=True)
    [entry_id] = await fill(own_redis, "s", 1)

    await own_redis.config_set("maxmemory", 1)

    with pytest.raises(OutOfMemoryError):
        await own_redis.xadd("s", {"a": 1})
    [[_, [[read, _]]]] = await own_redis.xreadgroup(GROUP, "c", {"s": ">"})
    assert read == entry_id
    assert await own_redis.xack("s", GROUP, entry_id) == 1
    assert await own_redis.xdel("s", entry_id) == 1


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_with_an_eviction_policy_the_memory_limit_deletes_the_queue(own_redis: Redis, policy: str) -> None:
    async def is_gone() -> bool:
        return not await own_redis.exists("s")

    await own_redis.xgroup_create("s", GROUP, "0", mkstream=True)
    await fill(own_redis, "s", 100)
    await own_redis.config_set("maxmemory-policy", policy)

    await own_redis.config_set("maxmemory", 1)

    await eventually(is_gone)
    with pytest.raises(ResponseError, match="NOGROUP"):
        await own_redis.xreadgroup(GROUP, "c", {"s": ">"})
