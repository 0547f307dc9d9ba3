"""The shared quota on each server, and the lifecycle of its leases.

Time passes by moving the server times in the state.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from consumers import open_quota
from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.quota import LeaseRequest, QuotaLimits
from ingest.lab.servers import ValkeyServer
from ingest.queue.consume.quota import FleetQuotaClient, quota_key
from ingest.queue.redis.connection import QueueRefused

pytestmark = pytest.mark.topologies

Join = Callable[..., Awaitable[FleetQuotaClient]]


@pytest.fixture
def key(queue_name: str) -> str:
    return quota_key(queue_name)


@pytest.fixture
async def join(redis_url: str, queue_name: str) -> AsyncIterator[Join]:
    """Open clients of the quota, each as a separate process."""
    async with AsyncExitStack() as stack:

        async def client(rate: float = 0.0, concurrency: int = 0, burst: int = 1) -> FleetQuotaClient:
            limits = QuotaLimits(rate, burst, concurrency)
            opened = await stack.enter_async_context(open_quota(redis_url, queue_name, limits))
            # Connects before the first lease, as a worker does.
            await opened.pause(0.0)
            return opened

        yield client


async def has_learned(redis: Redis, key: str) -> None:
    """End the time in which the server collects the leases of the processes."""
    await redis.hset(key, mapping={"created": 1, "learning": 1})


async def passes(redis: Redis, key: str, seconds: int) -> None:
    """Let the contributions be older by some seconds."""
    slots = [f"seconds{slot}" for slot in range(4)]
    noted = [text.decode().split() for text in await redis.hmget(key, slots) if text]
    await redis.hdel(key, *slots)
    for epoch, *sums in noted:
        at = int(epoch) - seconds
        await redis.hset(key, f"seconds{at % 4}", " ".join([str(at), *sums]))


async def booked_ahead(redis: Redis, key: str) -> float:
    """Seconds from now to the first place on the line of time that is free."""
    return await booked_until(redis, key) - await now(redis)


async def booked_until(redis: Redis, key: str) -> float:
    """The first place that is free, in Unix time by Redis' clock."""
    return float(await redis.hget(key, "next")) / 1000


async def now(redis: Redis) -> float:
    """Redis' Unix time in seconds."""
    seconds, micros = await redis.time()
    return float(seconds + micros / 1e6)


# -- the rate ---------------------------------------------------------------------------------------------------


async def test_the_places_of_all_processes_follow_each_other_at_the_rate(join: Join, redis: Redis, key: str) -> None:
    await has_learned(redis, key)
    clients = [await join(rate=20.0) for _ in range(4)]
    started, booked = await now(redis), 0

    for client in clients * 2:
        booked += (await client.lease(LeaseRequest(tokens=100))).tokens

    # Unused places are not made up for, so that the line ends later on a slow machine, but never earlier.
    end = await booked_until(redis, key)
    assert started + booked / 20.0 - 0.01 <= end <= await now(redis) + booked / 20.0


async def test_nothing_is_booked_far_ahead(join: Join, redis: Redis, key: str) -> None:
    await has_learned(redis, key)
    clients = [await join(rate=10.0) for _ in range(60)]

    leases = await asyncio.gather(*(client.lease(LeaseRequest(tokens=50)) for client in clients))

    assert await booked_ahead(redis, key) < 2.6
    refused = [lease for lease in leases if not lease.tokens]
    assert refused
    assert all(lease.renew_in > 0.1 for lease in refused)


async def test_the_clock_of_the_server_going_back_stops_nobody(join: Join, redis: Redis, key: str) -> None:
    await has_learned(redis, key)
    client = await join(rate=200.0)
    await client.lease(LeaseRequest(tokens=20))
    ahead = 3_600_000
    for field in ("latest", "next"):
        await redis.hset(key, field, float(await redis.hget(key, field)) + ahead)

    leases = [await client.lease(LeaseRequest(tokens=20)) for _ in range(3)]

    assert leases[0].tokens == 20
    assert all(lease.starts_in < 1.0 for lease in leases)


# -- the concurrency ----------------------------------------------------------------------------------------------


async def ask(client: FleetQuotaClient, want: int) -> int:
    return (await client.lease(LeaseRequest(concurrency=want))).limit


async def test_what_small_ones_do_not_want_goes_to_the_large(join: Join, redis: Redis, key: str) -> None:
    await has_learned(redis, key)
    small, *large = [await join(concurrency=90) for _ in range(3)]
    wants = [(small, 10), (large[0], 500), (large[1], 500)]

    for _ in range(4):
        limits = [await ask(client, want) for client, want in wants]

    assert limits == [10, 40, 40]


# -- coming and going ---------------------------------------------------------------------------------------------


async def test_at_the_first_start_nothing_is_granted_until_the_others_had_time_to_say_what_they_hold(
    join: Join, redis: Redis, key: str
) -> None:
    client = await join(rate=200.0, concurrency=100)

    lease = await client.lease(LeaseRequest(tokens=10, concurrency=10))

    assert (lease.is_learning, lease.tokens) == (True, 0)
    await redis.hset(key, mapping={"learning": 1, "next": 1})
    lease = await client.lease(LeaseRequest(tokens=10, concurrency=10))
    assert (lease.is_learning, lease.tokens, lease.limit) == (False, 10, 10)


async def test_learning_lasts_longer_while_fewer_processes_have_asked_than_there_were(
    join: Join, redis: Redis, key: str
) -> None:
    await has_learned(redis, key)
    one, two = await join(concurrency=100), await join(concurrency=100)
    assert (await one.lease(LeaseRequest(concurrency=100, claim=50, members=2, is_back=True))).is_learning
    await redis.hset(key, "learning", (await redis.time())[0] * 1000 - 100)

    assert (await one.lease(LeaseRequest(concurrency=100, claim=50, members=2))).is_learning
    assert not (await two.lease(LeaseRequest(concurrency=100, claim=50, members=2))).is_learning
    assert (await one.lease(LeaseRequest(concurrency=100, claim=50))).limit <= 60


async def test_learning_ends_although_a_process_does_not_come_back(join: Join, redis: Redis, key: str) -> None:
    client = await join(concurrency=100)
    assert (await client.lease(LeaseRequest(concurrency=100, members=2, is_back=True))).is_learning
    await redis.hset(key, "learning", (await redis.time())[0] * 1000 - 4000)

    assert await ask(client, 100) == 100


async def test_the_state_does_not_grow_with_the_number_of_processes(join: Join, redis: Redis, key: str) -> None:
    await has_learned(redis, key)
    clients = [await join(rate=100.0, concurrency=50) for _ in range(40)]

    for client in clients:
        await client.lease(LeaseRequest(tokens=3, concurrency=3))

    assert await redis.hlen(key) <= 13
    assert (await clients[0].lease(LeaseRequest())).members == 40


async def test_a_quota_is_shared_by_its_name_whatever_the_queue(redis_url: str, redis: Redis, queue_name: str) -> None:
    limits = QuotaLimits(concurrency=10)
    async with (
        open_quota(redis_url, queue_name, limits) as one,
        open_quota(redis_url, queue_name, limits) as other,
        open_quota(redis_url, queue_name + "-2", limits) as stranger,
    ):
        for name in (queue_name, queue_name + "-2"):
            await has_learned(redis, quota_key(name))

        assert await ask(one, 10) == 10
        assert await ask(other, 10) == 0
        assert await ask(stranger, 10) == 10


# -- pauses -------------------------------------------------------------------------------------------------------


async def test_a_pause_holds_for_all_and_the_longest_of_several(join: Join) -> None:
    one, two = await join(), await join()

    assert await two.pause(0.0) == 0.0
    assert await one.pause(30.0) == pytest.approx(30.0, abs=0.5)
    assert await two.pause(5.0) == pytest.approx(30.0, abs=2.0)

    assert await one.pause(0.0) == pytest.approx(30.0, abs=2.0)


async def test_asking_for_a_pause_writes_nothing(join: Join, redis: Redis, key: str) -> None:
    await (await join()).pause(0.0)

    assert not await redis.exists(key)


# -- trouble ------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_unavailable_or_refuses_is_told_as_that(
    own_valkey: ValkeyServer, own_redis: Redis, queue_name: str
) -> None:
    async with open_quota(own_valkey.url, queue_name, QuotaLimits(rate=10.0)) as client:
        await client.lease(LeaseRequest())
        await own_redis.set(quota_key(queue_name + "x"), "no hash")
        async with open_quota(own_valkey.url, queue_name + "x", QuotaLimits()) as refused:
            with pytest.raises(QueueRefused):
                await refused.lease(LeaseRequest())
        own_valkey.stop()

        with pytest.raises(QueueUnavailable):
            await client.lease(LeaseRequest())


@pytest.mark.each_server
async def test_a_server_out_of_memory_still_leases(own_valkey: ValkeyServer, own_redis: Redis, queue_name: str) -> None:
    async with open_quota(own_valkey.url, queue_name, QuotaLimits(rate=10.0)) as client:
        await own_redis.config_set("maxmemory", "1mb")
        await own_redis.config_set("maxmemory-policy", "noeviction")

        assert (await client.lease(LeaseRequest(tokens=1))).is_learning
        assert await client.pause(10.0) > 9.0


async def test_a_cancelled_call_leaves_a_client_that_works(join: Join, redis: Redis, key: str) -> None:
    await has_learned(redis, key)
    client = await join(rate=200.0)
    calling = asyncio.create_task(client.lease(LeaseRequest(tokens=1)))
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling])

    assert (await client.lease(LeaseRequest(tokens=1))).tokens == 1
