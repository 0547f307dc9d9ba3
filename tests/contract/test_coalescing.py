"""Coalesced announcements on a real server. A waiting order is not queued twice, and a possibly newer one always is."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import pytest
from consumers import Consumer
from contract.heartbeating import GROUP
from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import UNKNOWN_VERSION, Announcement
from ingest.domain.deliveries.delivery import RetryReason
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.produce.producer_errors import BacklogFull

pytestmark = pytest.mark.topologies

NEW = Accepted(1, 0)
WAITS = Accepted(0, 1)


async def queued(redis: Redis, stream: str) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(stream)]


@pytest.fixture
async def producer(redis_url: str, queue_name: str) -> AsyncIterator[Producer]:
    async with Producer.connect(redis_url, queue_name) as producer:
        yield producer


async def announce(producer: Producer, order_id: str) -> Accepted:
    return await producer.try_announce(order_id, coalesce=60)


# -- not queued again ---------------------------------------------------------------------------------------


async def test_an_order_that_waits_is_not_queued_again_whoever_announces_it(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str, producer: Producer
) -> None:
    async with Producer.connect(redis_url, queue_name) as other:
        results = [await announce(each, "a") for each in (producer, other, producer)]

    assert results == [NEW, WAITS, WAITS]
    assert await queued(redis, keys.stream) == ["a"]
    assert 59_000 < await redis.pttl(f"{keys.waiting}a") <= 60_000


async def test_of_concurrent_announcements_of_one_order_one_is_queued(
    redis: Redis, keys: Keys, producer: Producer
) -> None:
    results = await asyncio.gather(*(announce(producer, f"order-{number % 10}") for number in range(200)))

    assert sum(result.accepted for result in results) == 10
    assert sum(result.duplicates for result in results) == 190
    assert sorted(await queued(redis, keys.stream)) == [f"order-{number}" for number in range(10)]


async def test_one_call_may_name_an_order_twice(redis: Redis, keys: Keys, producer: Producer) -> None:
    names = [f"order-{number % (BATCH - 1)}" for number in range(2 * BATCH)]

    assert await producer.try_announce(names, coalesce=60) == Accepted(BATCH - 1, BATCH + 1)

    assert await queued(redis, keys.stream) == names[: BATCH - 1]


async def test_without_coalescing_nothing_is_remembered_and_each_announcement_is_queued(
    redis: Redis, keys: Keys, producer: Producer
) -> None:
    assert await producer.try_announce(["a", "a"]) == Accepted(2, 0)
    assert await redis.keys(f"{keys.waiting}*") == []
    assert await announce(producer, "a") == NEW
    assert await producer.try_announce("a") == NEW

    assert await queued(redis, keys.stream) == ["a"] * 4


async def test_a_document_is_always_queued_and_an_id_with_a_source_is_coalesced(
    redis: Redis, keys: Keys, producer: Producer
) -> None:
    pushed = Announcement("a", document={"id": "a"}, origin="shop")
    named = Announcement("a", origin="shop")

    results = [
        await producer.try_announce(orders, coalesce=60) for orders in (pushed, named, pushed, [named, pushed, "a"])
    ]

    assert results == [NEW, NEW, NEW, Accepted(1, 2)]
    assert await queued(redis, keys.stream) == ["a"] * 4


async def test_what_needs_no_entry_needs_no_room(redis: Redis, keys: Keys, redis_url: str, queue_name: str) -> None:
    async with Producer.connect(redis_url, queue_name, backlog_limit=2) as producer:
        assert await producer.try_announce(["a", "b"], coalesce=60) == Accepted(2, 0)
        assert await producer.try_announce(["a", "b"], coalesce=60) == Accepted(0, 2)
        results = await asyncio.gather(
            producer.try_announce("c"),
            announce(producer, "a"),
            announce(producer, "c"),
            announce(producer, "b"),
            return_exceptions=True,
        )

    assert [type(result) for result in results] == [BacklogFull, Accepted, BacklogFull, Accepted]
    assert await queued(redis, keys.stream) == ["a", "b"]


async def test_under_an_idempotency_key_the_same_is_answered_again(
    redis: Redis, keys: Keys, producer: Producer
) -> None:
    async def call(orders: list[str], key: str) -> Accepted:
        return await producer.try_announce(orders, coalesce=60, idempotency_key=key)

    await announce(producer, "a")
    first = await call(["a", "b", "c"], "k")
    await redis.delete(keys.stream)

    assert first == Accepted(2, 1)
    assert await call(["a", "b", "c"], "k") == first
    assert await asyncio.gather(call(["a"], "one"), call(["a"], "one"), call(["a"], "two")) == [NEW, NEW, WAITS]
    assert await producer.enqueue(["a", "b", "c"], idempotency_key="k") == 3
    assert await queued(redis, keys.stream) == ["a"]


# -- with the newest version ----------------------------------------------------------------------------------


def versioned(minute: int | None) -> Announcement:
    version = UNKNOWN_VERSION if minute is None else datetime(2026, 11, 1, 12, minute, tzinfo=UTC)
    return Announcement("a", expected_version=version)


@pytest.mark.parametrize("is_one_call", [True, False])
@pytest.mark.parametrize(
    ("minutes", "newest"),
    [((1, 2), 2), ((2, 1), 2), ((None, 2), 2), ((1, 3, 2), 3), ((1, None), 1), ((None, None), None)],
)
async def test_a_waiting_entry_expects_the_newest_announced_version(
    producer: Producer, one: Consumer, minutes: Sequence[int | None], newest: int | None, *, is_one_call: bool
) -> None:
    orders = [versioned(minute) for minute in minutes]
    for call in [orders] if is_one_call else [[order] for order in orders]:
        await producer.try_announce([*call, "b"], coalesce=60)

    first, other = await one.read(9, 0.01)

    assert first.expected_version() == versioned(newest).expected_version
    assert other.expected_version() is None


async def test_an_entry_expects_the_newest_version_after_the_death_of_its_first_reader(
    redis: Redis, keys: Keys, producer: Producer, one: Consumer
) -> None:
    await producer.try_announce(versioned(1), coalesce=60)
    await producer.try_announce(versioned(2), coalesce=60)
    await one.read(9, 0.01)

    [again] = await one.claim_own(9, [])
    assert await one.reschedule(again, 0.0, 1, RetryReason.OUTDATED, "")
    lifetime = await redis.ttl(keys.version_of("a"))
    await redis.delete(keys.version_of("a"))
    await one.move_due(9)
    [retried] = await one.read(9, 0.01)

    assert again.expected_version() == retried.expected_version() == versioned(2).expected_version
    assert 0 < lifetime <= 60


# -- queued again, because it may be newer -----------------------------------------------------------------------


async def read(consumer: Consumer, count: int = 1) -> list[str | None]:
    return [delivery.order_id for delivery in await consumer.read(count, 0.01)]


async def test_an_order_that_a_worker_has_been_given_is_queued_again(
    redis: Redis, keys: Keys, producer: Producer, one: Consumer
) -> None:
    await producer.try_announce(["a", "b"], coalesce=60)
    assert await read(one) == ["a"]

    assert await producer.try_announce(["a", "b"], coalesce=60) == Accepted(1, 1)

    assert await queued(redis, keys.stream) == ["a", "b", "a"]


async def test_an_order_that_one_of_several_groups_has_read_is_queued_again(
    redis: Redis, keys: Keys, producer: Producer, one: Consumer
) -> None:
    await redis.xgroup_create(keys.stream, "audit", "0")
    assert await announce(producer, "a") == NEW
    assert await announce(producer, "a") == WAITS

    await redis.xreadgroup("audit", "auditor", {keys.stream: ">"})

    assert await announce(producer, "a") == NEW
    assert await read(one, 9) == ["a", "a"]


@pytest.mark.parametrize("position", ["0", "0-1"])
async def test_a_group_that_is_set_back_does_not_make_what_is_in_flight_wait(
    redis: Redis, keys: Keys, producer: Producer, one: Consumer, position: str
) -> None:
    await announce(producer, "a")
    assert await read(one) == ["a"]
    await redis.xgroup_setid(keys.stream, GROUP, position)

    assert await announce(producer, "a") == NEW


@pytest.mark.parametrize("loss", ["deleted", "trimmed", "stream deleted", "flushed", "replaced"])
async def test_an_order_whose_entry_is_gone_is_queued_again(
    own_valkey: ValkeyServer, own_redis: Redis, loss: str
) -> None:
    keys = Keys.of("orders")
    async with Producer.connect(own_valkey.url, "orders") as producer:
        await producer.try_announce(["before", "a"], coalesce=60)
        entry_id = (await own_redis.get(f"{keys.waiting}a")).decode()
        match loss:
            case "deleted":
                await own_redis.xdel(keys.stream, entry_id)
            case "trimmed":
                await own_redis.xtrim(keys.stream, maxlen=0, approximate=False)
            case "stream deleted":
                await own_redis.delete(keys.stream)
            case "flushed":
                await own_redis.flushall()
            case _:
                # The same entry ID, after a failover to a server that is behind.
                await own_redis.delete(keys.stream)
                await own_redis.xadd(keys.stream, {"order_id": "other"}, id=entry_id)

        assert await announce(producer, "a") == NEW
        assert await announce(producer, "a") == WAITS


async def test_a_record_ends_with_its_time(redis: Redis, keys: Keys, producer: Producer) -> None:
    await producer.try_announce("a", coalesce=0.0001)
    while await redis.exists(f"{keys.waiting}a"):
        pass

    assert await announce(producer, "a") == NEW


async def test_the_lanes_are_coalesced_each_for_itself(redis: Redis, keys: Keys, producer: Producer) -> None:
    assert await announce(producer, "a") == NEW

    assert await producer.try_announce("a", express=True, coalesce=60) == NEW
    assert await producer.try_announce("a", express=True, coalesce=60) == WAITS

    assert await queued(redis, keys.express) == ["a"]


@pytest.mark.each_server
async def test_a_user_who_may_not_ask_for_groups_has_each_announcement_queued(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    await own_redis.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-xinfo|groups")

    async with Producer.connect(f"redis://limited:pw@127.0.0.1:{own_valkey.port}/0", "orders") as producer:
        assert [await announce(producer, "a") for _ in range(2)] == [NEW, NEW]


@pytest.mark.parametrize("coalesce", [-1, 86_401, float("nan")])
async def test_a_time_that_cannot_be_is_refused(producer: Producer, coalesce: float) -> None:
    with pytest.raises(ValueError, match="coalesce must be"):
        await producer.try_announce("a", coalesce=coalesce)
