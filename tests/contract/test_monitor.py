"""The monitor's report of a queue on a real server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from consumers import Consumer
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.queue_state import Lane, QueueState
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.operating.source_state import ProcessReport, Reason, State
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.partition_monitor import PartitionMonitor
from ingest.queue.redis.connection import control_client

pytestmark = pytest.mark.topologies


@pytest.fixture
async def monitor(redis_url: str, queue_name: str) -> AsyncIterator[PartitionMonitor]:
    async with control_client(redis_url) as client:
        yield PartitionMonitor(client, queue_name, "ingest")


@pytest.fixture
async def consumer(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with Consumer.open(redis_url, queue_name, "ingest", "one", 1.0) as consumer:
        yield consumer


async def fill(redis: Redis, stream: str, count: int) -> None:
    for number in range(count):
        await redis.xadd(stream, {"order_id": f"order-{number}"})


async def read(redis: Redis, stream: str, count: int, *, group: str = "ingest", consumer: str = "one") -> list[bytes]:
    """Read entries of one lane, and return their IDs."""
    reply: Any = await redis.xreadgroup(group, consumer, {stream: ">"}, count=count)
    return [entry_id for _, entries in reply for entry_id, _ in entries]


async def seconds_ago(redis: Redis, age: int) -> int:
    """A time by Redis' clock, in ms."""
    seconds, _ = await redis.time()
    return int(seconds - age) * 1000


async def age_of(monitor: PartitionMonitor) -> float:
    """The age of the oldest order, rounded to ten seconds."""
    age = (await monitor.state()).oldest_age
    assert age is not None
    return age // 10 * 10


async def test_a_queue_that_nobody_has_used_is_empty(monitor: PartitionMonitor, redis: Redis, keys: Keys) -> None:
    assert await monitor.state() == QueueState()
    assert await monitor.consumers() == []
    assert await redis.exists(keys.stream) == 0


async def test_without_a_group_all_is_undelivered(monitor: PartitionMonitor, redis: Redis, keys: Keys) -> None:
    await fill(redis, keys.stream, 3)
    await fill(redis, keys.express, 2)

    state = await monitor.state()

    assert (state.depth, state.pending, state.consumers) == (5, 0, 0)
    assert {lane: about.depth for lane, about in state.lanes.items()} == {Lane.MAIN: 3, Lane.EXPRESS: 2}
    assert await monitor.consumers() == []


async def test_each_entry_is_counted_where_it_is(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await fill(redis, keys.stream, 10)
    taken = await consumer.read(6, 0.001)
    await consumer.ack([taken[0].entry])
    await consumer.reschedule(taken[1], 60, 2)
    await consumer.reschedule(taken[2], 60, 2)
    await consumer.dead_letter(taken[3], DeadReason.REJECTED, "no")

    state = await monitor.state()

    assert (state.depth, state.pending, state.retries, state.dead, state.consumers) == (4, 2, 2, 1, 1)
    [only] = await monitor.consumers()
    assert (only.name, only.pending) == ("one", 2)
    assert only.idle is not None
    assert only.idle >= 0


@pytest.mark.parametrize("due", [0, 1, 4, 7])
async def test_those_retries_are_due_whose_time_has_come(
    monitor: PartitionMonitor, redis: Redis, keys: Keys, due: int
) -> None:
    past, future = await seconds_ago(redis, 60), await seconds_ago(redis, -60)
    scores = {f"due-{number}": past for number in range(due)} | {f"later-{number}": future for number in range(7 - due)}
    await redis.zadd(keys.retry, scores)

    state = await monitor.state()

    assert (state.retries, state.retries_due) == (7, due)


async def test_retries_are_due_by_the_queues_clock_where_the_servers_went_back(
    monitor: PartitionMonitor, redis: Redis, keys: Keys
) -> None:
    # As if the server's clock had been an hour ahead until now.
    await redis.hset(keys.clock, "latest", await seconds_ago(redis, -3600))
    await redis.zadd(keys.retry, {"due": await seconds_ago(redis, -1800), "later": await seconds_ago(redis, -5400)})

    assert (await monitor.state()).retries_due == 1


async def test_each_lane_is_counted_and_the_totals_are_their_sums(
    monitor: PartitionMonitor, redis: Redis, keys: Keys
) -> None:
    for stream, count, taken in ((keys.stream, 6, 2), (keys.express, 4, 3)):
        await redis.xgroup_create(stream, "ingest", id="0", mkstream=True)
        await fill(redis, stream, count)
        await read(redis, stream, taken)

    state = await monitor.state()
    [one] = await monitor.consumers()

    counts = {lane: (about.depth, about.pending) for lane, about in state.lanes.items()}
    assert counts == {Lane.MAIN: (4, 2), Lane.EXPRESS: (1, 3)}
    assert (state.depth, state.pending, state.consumers) == (5, 5, 1)
    assert (one.name, one.pending) == ("one", 5)


async def test_a_group_that_the_express_lane_does_not_have_yet_is_still_to_read_all_of_it(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await fill(redis, keys.stream, 1)
    await redis.delete(keys.express)
    await fill(redis, keys.express, 2)

    state = await monitor.state()

    assert (state.depth, state.lanes[Lane.EXPRESS].depth, state.lanes[Lane.EXPRESS].pending) == (3, 2, 0)


async def test_the_age_is_that_of_the_oldest_unfinished_entry(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    seconds, _ = await redis.time()
    for age in (500, 300, 100):
        await redis.xadd(keys.stream, {"order_id": "a"}, id=f"{(seconds - age) * 1000}-0")
    await consumer.ensure_group()
    [oldest] = await consumer.read(1, 0.001)

    pending = (await monitor.state()).oldest_age
    await consumer.ack([oldest.entry])
    waiting = (await monitor.state()).oldest_age

    assert pending is not None
    assert waiting is not None
    assert 500 <= pending < 600
    assert 300 <= waiting < 400


async def test_an_order_keeps_its_age_from_its_first_announcement_through_retries(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    for age, order in ((500, "a"), (900, "b"), (300, "c")):
        await redis.xadd(keys.stream, {"order_id": order, "enqueued_at": await seconds_ago(redis, age)})
    taken = await consumer.read(3, 0.001)
    for delivery, after in zip(taken, (0.0, 3600.0, 3600.0), strict=True):
        await consumer.reschedule(delivery, after, 2)

    in_the_retry_set = await age_of(monitor)
    await redis.zadd(keys.retry, {taken[1].entry.id: 0})
    await consumer.move_due(10)
    due_again = await age_of(monitor)

    assert (in_the_retry_set, due_again) == (900, 900)
    assert await redis.zrange(keys.retry_announced, 0, -1) == [taken[2].entry.id.encode()]


async def test_in_the_express_lane_the_oldest_order_need_not_be_the_first(
    monitor: PartitionMonitor, redis: Redis, keys: Keys
) -> None:
    for age in (10, 700, 400):
        await redis.xadd(keys.express, {"order_id": "a", "enqueued_at": await seconds_ago(redis, age)})
    await fill(redis, keys.stream, 1)

    state = await monitor.state()

    main, express = state.lanes[Lane.MAIN].oldest_age, state.lanes[Lane.EXPRESS].oldest_age
    assert main is not None
    assert express is not None
    assert 0 <= main < 60
    assert 700 <= express < 760
    assert state.oldest_age == express


@pytest.mark.parametrize("nonsense", [b"", b"-1", b"1e3", b"nan", b"9" * 14, b"\xff"])
async def test_an_entry_whose_time_is_nonsense_is_as_old_as_its_id(
    monitor: PartitionMonitor, redis: Redis, keys: Keys, nonsense: bytes
) -> None:
    at = await seconds_ago(redis, 200)
    await redis.xadd(keys.stream, {"order_id": "a", "enqueued_at": nonsense}, id=f"{at}-0")

    assert await age_of(monitor) == 200


async def test_an_entry_from_the_future_has_just_been_announced(
    monitor: PartitionMonitor, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {"order_id": "a"}, id=f"{(1 << 64) - 1}-0")

    assert (await monitor.state()).oldest_age == 0.0


async def test_what_an_older_release_left_behind_of_a_retry_is_passed_over_and_removed(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await redis.xadd(keys.stream, {"order_id": "a", "enqueued_at": await seconds_ago(redis, 300)})
    [delivery] = await consumer.read(1, 0.001)
    await consumer.reschedule(delivery, 3600.0, 2)
    await redis.zadd(keys.retry_announced, {"1-0": await seconds_ago(redis, 9_000)})

    age = await age_of(monitor)
    await consumer.move_due(10)

    assert age == 300
    assert await redis.zrange(keys.retry_announced, 0, -1) == [delivery.entry.id.encode()]


async def test_with_a_second_group_each_has_its_own_depth(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await fill(redis, keys.stream, 5)
    await redis.xgroup_create(keys.stream, "audit", id="0")
    taken = await consumer.read(3, 0.001)
    await consumer.ack([taken[0].entry])

    state = await monitor.state()

    assert (state.depth, state.pending) == (2, 2)


async def test_a_depth_that_redis_cannot_tell_is_unknown_and_not_zero(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await redis.xgroup_create(keys.stream, "audit", id="0")
    await fill(redis, keys.stream, 5)
    await fill(redis, keys.express, 1)
    [entry_id] = [entry_id for entry_id, _ in await redis.xrange(keys.stream)][2:3]
    await redis.xdel(keys.stream, entry_id)  # unread, in the middle

    state = await monitor.state()

    assert (state.depth, state.lanes[Lane.MAIN].depth, state.lanes[Lane.EXPRESS].depth) == (None, None, 1)


async def test_consumers_are_listed_by_name(monitor: PartitionMonitor, redis: Redis, keys: Keys) -> None:
    await redis.xgroup_create(keys.stream, "ingest", mkstream=True)
    for name in ("b", "c", "a", b"\xff"):
        await redis.xgroup_createconsumer(keys.stream, "ingest", name)

    assert [state.name for state in await monitor.consumers()] == ["a", "b", "c", "\ufffd"]


async def test_a_heartbeat_under_a_name_that_is_not_text_is_told_of(
    monitor: PartitionMonitor, redis: Redis, keys: Keys
) -> None:
    seconds, _ = await redis.time()
    await redis.zadd(keys.alive, {b"\xff": (seconds + 60) * 1000})

    assert [(state.name, state.state) for state in await monitor.consumers()] == [("\ufffd", "alive")]


async def test_a_consumer_lives_as_long_as_its_heartbeat_also_if_it_never_asked_for_anything(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await fill(redis, keys.stream, 1)
    await consumer.read(1, 0.001)
    await consumer.heartbeat(60.0)
    seconds, _ = await redis.time()
    await redis.zadd(keys.alive, {"heartbeat_only": (seconds + 60) * 1000, "stale": (seconds - 30) * 1000, "left": 0})
    await redis.xgroup_createconsumer(keys.stream, "ingest", "stale")
    await redis.xgroup_createconsumer(keys.stream, "ingest", "foreign")

    found = {state.name: state for state in await monitor.consumers()}

    assert {name: state.state for name, state in found.items()} == {
        "one": "alive",
        "heartbeat_only": "alive",
        "stale": "stale",
        "left": "stale",
        "foreign": "unknown",
    }
    assert (found["one"].pending, found["one"].stale_for, found["one"].reasons) == (1, None, ())
    assert (found["heartbeat_only"].pending, found["heartbeat_only"].idle) == (0, None)
    assert 29 <= (found["stale"].stale_for or 0) <= 60
    assert found["left"].stale_for is None
    assert found["foreign"].idle is not None


async def test_heartbeats_of_another_group_are_not_ours(
    monitor: PartitionMonitor, redis: Redis, queue_name: str
) -> None:
    seconds, _ = await redis.time()
    await redis.zadd(Keys.of(queue_name, "audit").alive, {"theirs": (seconds + 60) * 1000})

    assert await monitor.consumers() == []


async def test_a_clock_of_the_server_that_went_back_keeps_no_dead_consumer_alive(
    monitor: PartitionMonitor, redis: Redis, keys: Keys
) -> None:
    seconds, _ = await redis.time()
    ahead = 3_600
    await redis.hset(
        keys.clock,
        mapping={"ahead": ahead * 1000, "noted_at": seconds * 1000, "latest": (seconds + ahead) * 1000},
    )
    until = {"dead": (seconds + ahead - 30) * 1000, "lives": (seconds + ahead + 600) * 1000}
    await redis.zadd(keys.alive, until)

    assert {state.name: state.state for state in await monitor.consumers()} == {"dead": "stale", "lives": "alive"}


async def test_each_group_has_its_own_retries_and_dead_letters(redis_url: str, queue_name: str, redis: Redis) -> None:
    audit = Keys.of(queue_name, "audit")
    await redis.zadd(audit.retry, {"1-0": 1})
    await redis.xadd(audit.dead, {"order_id": "a"})

    async with control_client(redis_url) as client:
        theirs = await PartitionMonitor(client, queue_name, "audit").state()
        ours = await PartitionMonitor(client, queue_name, "ingest").state()

    assert (theirs.retries, theirs.dead, ours.retries, ours.dead) == (1, 1, 0, 0)


async def test_the_reasons_of_a_consumer_that_is_not_alive_are_not_reported(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.heartbeat(60.0, report=ProcessReport([Reason(State.CIRCUIT_OPEN, "HTTP 401")]))
    seconds, _ = await redis.time()
    await redis.zadd(keys.alive, {consumer.name: (seconds - 1) * 1000})

    [state] = await monitor.consumers()

    assert (state.state, state.reasons) == ("stale", ())


@pytest.mark.parametrize("foreign", [b"", b"nonsense", b"\xff", b"[]", b'[{"since": "x"}]', b'{"error": "HTTP 401"}'])
async def test_a_report_that_cannot_be_read_is_none(
    monitor: PartitionMonitor, consumer: Consumer, redis: Redis, keys: Keys, foreign: bytes
) -> None:
    await consumer.heartbeat(60.0)
    await redis.set(f"{keys.circuit}{consumer.name}", foreign)

    [state] = await monitor.consumers()

    assert state.reasons == ()


async def test_reasons_end_with_the_heartbeat(consumer: Consumer, redis: Redis, keys: Keys) -> None:
    await consumer.heartbeat(0.05, report=ProcessReport([Reason(State.CIRCUIT_OPEN, "HTTP 401")]))

    async def gone() -> bool:
        return not await redis.exists(f"{keys.circuit}{consumer.name}")

    await eventually(gone)


@pytest.mark.each_server
async def test_server_settings_that_can_lose_entries_are_reported(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    async def rewritten() -> bool:
        info = await own_redis.info("persistence")
        return not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])

    async with control_client(own_valkey.url) as client:
        monitor = PartitionMonitor(client, "orders", "ingest")
        volatile = await monitor.traps()
        await own_redis.config_set("maxmemory-policy", "volatile-lru")
        expiring = (await monitor.traps())[-2]
        await own_redis.config_set("appendonly", "yes")
        await own_redis.config_set("maxmemory-policy", "allkeys-lru")
        evicting = await monitor.traps()
        await own_redis.config_set("maxmemory-policy", "noeviction")
        safe = await monitor.traps()
    await eventually(rewritten)  # the server does not end before

    assert [line.split()[0] for line in (*volatile, *evicting)] == ["appendonly", "maxmemory-policy"]
    assert "noeviction" in evicting[0]
    assert "delete the queue itself" in evicting[0]
    assert "queued twice" in expiring
    assert safe == []


async def test_a_server_that_does_not_answer_is_unavailable(own_valkey: ValkeyServer) -> None:
    async with control_client(own_valkey.url) as client:
        monitor = PartitionMonitor(client, "orders", "ingest")
        own_valkey.stop("nosave")

        for call in (monitor.state, monitor.consumers, monitor.traps):
            with pytest.raises(QueueUnavailable):
                await call()


async def test_a_server_that_is_busy_with_a_script_is_unavailable(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    await own_redis.config_set("lua-time-limit", 1)
    async with control_client(own_valkey.url) as client, Redis.from_url(own_valkey.url) as other:
        monitor = PartitionMonitor(client, "orders", "ingest")
        script = asyncio.create_task(other.eval("while true do end", 0))  # type: ignore[arg-type]  # a coroutine

        async def is_busy() -> bool:
            try:
                return not await own_redis.ping()
            except ResponseError:
                return True

        try:
            await eventually(is_busy)
            for call in (monitor.state, monitor.consumers):
                with pytest.raises(QueueUnavailable, match=r"^BUSY") as unavailable:
                    await call()
                assert not isinstance(unavailable.value, UserError)
        finally:
            await own_redis.script_kill()
            with pytest.raises(ResponseError):
                await script


async def test_an_error_is_told_in_redis_own_words(monitor: PartitionMonitor, redis: Redis, keys: Keys) -> None:
    await redis.set(keys.clock, "not a hash")

    with pytest.raises(
        UserError, match=r"^Redis rejects a command: WRONGTYPE Operation .* value; `ingest doctor` names the key$"
    ):
        await monitor.consumers()
