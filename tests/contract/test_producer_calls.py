"""The producer's calls on a real server, with shared requests, calls that do not wait, idempotency keys, fields, lanes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import QueueUnavailable
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.produce.producer_errors import BacklogFull, EnqueueTimeout, IdempotencyKeyReused
from ingest.queue.redis.connection import QueueFull

pytestmark = pytest.mark.topologies


async def queued(redis: Redis, stream: str) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(stream)]


async def scripts_run(redis: Redis) -> int:
    stats = await redis.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


@pytest.fixture
async def producer(redis_url: str, queue_name: str) -> AsyncIterator[Producer]:
    async with Producer.connect(redis_url, queue_name) as producer:
        yield producer


# -- single calls -------------------------------------------------------------------------------------------------


async def test_thousands_of_concurrent_single_calls_share_a_few_round_trips(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    names = [f"order-{number}" for number in range(2_000)]

    async with Producer.connect(own_valkey.url, "orders") as producer:
        await producer.enqueue("first")
        before = await scripts_run(own_redis)
        accepted = await asyncio.gather(*(producer.enqueue(name) for name in names))
        after = await scripts_run(own_redis)

    assert accepted == [1] * 2_000
    assert await queued(own_redis, Keys.of("orders").stream) == ["first", *names]
    assert after - before <= 10


async def test_cancelled_single_calls_cost_no_other_call_its_order(
    redis: Redis, keys: Keys, producer: Producer
) -> None:
    calls = [asyncio.create_task(producer.enqueue(f"order-{number}")) for number in range(2_000)]

    await calls[700]
    for call in calls[::3]:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)

    confirmed = {f"order-{number}" for number, result in enumerate(results) if result == 1}
    in_stream = Counter(await queued(redis, keys.stream))
    assert confirmed <= in_stream.keys()
    assert set(in_stream.values()) == {1}
    assert any(isinstance(result, asyncio.CancelledError) for result in results)
    assert all(result == 1 for number, result in enumerate(results) if number % 3)


# -- calls that do not wait ---------------------------------------------------------------------------------------


async def test_try_enqueue_says_that_the_backlog_is_full_and_adds_nothing(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    async with Producer.connect(redis_url, queue_name, backlog_limit=3) as producer:
        assert await producer.try_enqueue(["a", "b"]) == 2
        with pytest.raises(BacklogFull, match="limit of 3 orders") as full:
            await producer.try_enqueue(["c", "d"])
        assert await producer.try_enqueue("c") == 1

    assert 1 <= full.value.retry_after <= 300
    assert await queued(redis, keys.stream) == ["a", "b", "c"]


async def test_of_many_single_calls_as_many_are_accepted_as_there_is_room_for(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    async with Producer.connect(redis_url, queue_name, backlog_limit=10) as producer:
        results = await asyncio.gather(
            *(producer.try_enqueue(f"order-{number}") for number in range(25)), return_exceptions=True
        )

    assert [type(result) for result in results] == [int] * 10 + [BacklogFull] * 15
    assert await queued(redis, keys.stream) == [f"order-{number}" for number in range(10)]


async def test_try_enqueue_says_that_redis_is_unavailable_and_works_as_soon_as_it_is_back(
    own_valkey: ValkeyServer,
) -> None:
    own_valkey.stop("nosave")

    async with Producer.connect(own_valkey.url, "orders") as producer:
        with pytest.raises(QueueUnavailable) as unavailable:
            await producer.try_enqueue("a")
        own_valkey.start()
        assert await producer.try_enqueue("a") == 1

    assert 0 < unavailable.value.retry_after <= 2
    assert own_valkey.password not in str(unavailable.value)


@pytest.mark.each_server
async def test_try_enqueue_says_that_redis_is_out_of_memory(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    await own_redis.config_set("maxmemory", 1)

    async with Producer.connect(own_valkey.url, "orders") as producer:
        with pytest.raises(QueueFull):
            await producer.try_enqueue(Announcement("a", document={"id": "a"}), idempotency_key="k")

    assert await own_redis.keys("*") == []


# -- a timeout ----------------------------------------------------------------------------------------------------


async def test_a_timeout_says_that_the_orders_may_have_been_accepted_and_sending_them_again_is_safe(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    async with Producer.connect(own_valkey.url, "orders") as producer:
        await producer.enqueue("first")
        await own_redis.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")

        with pytest.raises(EnqueueTimeout, match="may or may not have been accepted"):
            await producer.enqueue("a", idempotency_key="k", timeout=0.2)
        await own_redis.execute_command("CLIENT", "UNPAUSE")
        assert await producer.enqueue("a", idempotency_key="k", timeout=30) == 1

    assert await queued(own_redis, Keys.of("orders").stream) == ["first", "a"]


async def test_a_timeout_over_a_full_backlog_leaves_nothing_behind(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    async with Producer.connect(redis_url, queue_name, backlog_limit=1) as producer:
        await producer.enqueue("a")
        with pytest.raises(EnqueueTimeout):
            await producer.enqueue("b", timeout=0.1)
        await redis.delete(keys.stream)
        await producer.enqueue("c")

    assert await queued(redis, keys.stream) == ["c"]


# -- idempotency keys ---------------------------------------------------------------------------------------------


async def test_under_one_key_orders_are_accepted_once_whoever_sends_them(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str, producer: Producer
) -> None:
    async with Producer.connect(redis_url, queue_name) as other:
        results = await asyncio.gather(
            *(sender.enqueue(["a", "b"], idempotency_key="k") for sender in (producer, other) * 5),
            producer.try_enqueue(["a", "b"], idempotency_key="k", express=True),
        )

    assert results == [2] * 11
    assert (await queued(redis, keys.stream) + await queued(redis, keys.express)) == ["a", "b"]


async def test_a_call_of_several_steps_is_completed_when_it_is_sent_again(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    names = [f"order-{number}" for number in range(BATCH + 10)]

    async with Producer.connect(redis_url, queue_name, backlog_limit=BATCH) as producer:
        with pytest.raises(BacklogFull):
            await producer.try_enqueue(names, idempotency_key="k")
        assert await queued(redis, keys.stream) == names[:BATCH]
        await redis.delete(keys.stream)
        assert await producer.enqueue(names, idempotency_key="k") == len(names)

    assert await queued(redis, keys.stream) == names[BATCH:]


async def test_what_was_accepted_is_confirmed_though_the_backlog_is_full(redis_url: str, queue_name: str) -> None:
    async with Producer.connect(redis_url, queue_name, backlog_limit=2) as producer:
        await producer.enqueue(["a", "b"], idempotency_key="k")

        assert await producer.try_enqueue(["a", "b"], idempotency_key="k") == 2


async def test_a_key_that_belongs_to_other_orders_is_refused(redis: Redis, keys: Keys, producer: Producer) -> None:
    await producer.enqueue("a", idempotency_key="k")

    results = await asyncio.gather(
        producer.enqueue("b", idempotency_key="k"), producer.enqueue("c"), return_exceptions=True
    )

    assert isinstance(results[0], IdempotencyKeyReused)
    assert results[1] == 1
    assert await queued(redis, keys.stream) == ["a", "c"]


async def test_two_calls_at_once_under_one_key_with_other_orders_are_told_apart(
    redis: Redis, keys: Keys, producer: Producer
) -> None:
    results = await asyncio.gather(
        producer.enqueue("a", idempotency_key="k"), producer.enqueue("b", idempotency_key="k"), return_exceptions=True
    )

    assert results[0] == 1
    assert isinstance(results[1], IdempotencyKeyReused)
    assert await queued(redis, keys.stream) == ["a"]


async def test_a_key_is_remembered_for_its_lifetime(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str, producer: Producer
) -> None:
    await producer.enqueue("a", idempotency_key="day")
    async with Producer.connect(redis_url, queue_name, idempotency_lifetime=3600) as other:
        await other.enqueue("a", idempotency_key="hour")

    assert 86_000 < await redis.ttl(keys.records + "idempotency:day") <= 86_400
    assert 3_500 < await redis.ttl(keys.records + "idempotency:hour") <= 3_600
    with pytest.raises(ValueError, match="at least 60"):
        Producer(redis, queue_name, idempotency_lifetime=59)


# -- fields of an order ----------------------------------------------------------------------------------------


async def test_express_orders_go_to_the_express_lane(redis: Redis, keys: Keys, producer: Producer) -> None:
    await asyncio.gather(producer.enqueue(["a", "b"]), producer.enqueue("urgent", express=True))

    assert await queued(redis, keys.stream) == ["a", "b"]
    assert await queued(redis, keys.express) == ["urgent"]


async def test_a_full_main_lane_does_not_hold_up_an_express_order(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    async with Producer.connect(redis_url, queue_name, backlog_limit=1) as producer:
        await producer.enqueue("a")
        waiting = asyncio.create_task(producer.enqueue("b"))
        await producer.enqueue("urgent", express=True)
        assert not waiting.done()
        await redis.delete(keys.stream)
        await eventually(lambda: _done(waiting))

    assert await queued(redis, keys.express) == ["urgent"]


async def _done(task: "asyncio.Task[int]") -> bool:
    return task.done()
