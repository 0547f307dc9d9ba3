"""What the servers make of claims, idle times and counts of deliveries."""

from typing import Any

from redis.asyncio import Redis
from support import eventually

GROUP = "g"
LEASE = 60_000


async def deliver(redis: Redis, stream: str, count: int, consumer: str = "one") -> list[bytes]:
    """Add so many entries and let the consumer read them."""
    await redis.xgroup_create(stream, GROUP, "0", mkstream=True)
    entry_ids = [await redis.xadd(stream, {"n": number}) for number in range(count)]
    await redis.xreadgroup(GROUP, consumer, {stream: ">"})
    return entry_ids


async def age(redis: Redis, stream: str, consumer: str, *entry_ids: bytes) -> None:
    """Let entries look idle for twice the lease."""
    await redis.xclaim(stream, GROUP, consumer, 0, list(entry_ids), idle=2 * LEASE, justid=True)


async def pending(redis: Redis, stream: str, entry_id: bytes) -> dict[str, Any]:
    [row] = await redis.xpending_range(stream, GROUP, entry_id, entry_id, 1)
    return row


async def owner(redis: Redis, stream: str, entry_id: bytes) -> bytes:
    return (await pending(redis, stream, entry_id))["consumer"]


async def count(redis: Redis, stream: str, entry_id: bytes) -> int:
    return (await pending(redis, stream, entry_id))["times_delivered"]


async def idle(redis: Redis, stream: str, entry_id: bytes) -> int:
    return (await pending(redis, stream, entry_id))["time_since_delivered"]


# -- XAUTOCLAIM ---------------------------------------------------------------------------------------------------


async def test_xautoclaim_from_the_start_starves_stale_entries_behind_fresh_ones(redis: Redis, queue_name: str) -> None:
    entry_ids = await deliver(redis, queue_name, 300)
    await age(redis, queue_name, "one", *entry_ids[200:])

    claimed = [(await redis.xautoclaim(queue_name, GROUP, "two", LEASE, "0-0", count=10))[1] for _ in range(10)]

    assert claimed == [[]] * 10


async def test_xautoclaim_that_goes_on_from_its_cursor_gets_to_stale_entries_behind_fresh_ones(
    redis: Redis, queue_name: str
) -> None:
    entry_ids = await deliver(redis, queue_name, 300)
    await age(redis, queue_name, "one", *entry_ids[200:])
    claimed: list[bytes] = []
    cursors: list[bytes] = []

    while not cursors or cursors[-1] != b"0-0":
        start = cursors[-1] if cursors else b"0-0"
        cursor, entries, _ = await redis.xautoclaim(queue_name, GROUP, "two", LEASE, start, count=10)
        cursors.append(cursor)
        claimed += [entry_id for entry_id, _ in entries]

    assert cursors[:2] == [entry_ids[100], entry_ids[200]]  # 10 x COUNT were looked at
    assert claimed == entry_ids[200:]


async def test_xautoclaim_clears_pending_entries_whose_message_is_gone(redis: Redis, queue_name: str) -> None:
    gone, left = await deliver(redis, queue_name, 2)
    await redis.xdel(queue_name, gone)
    assert (await redis.xpending(queue_name, GROUP))["pending"] == 2

    _, claimed, cleared = await redis.xautoclaim(queue_name, GROUP, "two", 0, "0-0")

    assert ([entry_id for entry_id, _ in claimed], cleared) == ([left], [gone])
    assert (await redis.xpending(queue_name, GROUP))["pending"] == 1


# -- idle time and count ------------------------------------------------------------------------------------------


async def test_messages_grow_idle_in_a_buffer_where_nobody_works_on_them(redis: Redis, queue_name: str) -> None:
    worked_on, buffered = await deliver(redis, queue_name, 2)

    async def has_aged() -> bool:
        return await idle(redis, queue_name, buffered) >= 50

    await eventually(has_aged)
    await redis.xack(queue_name, GROUP, worked_on)  # only now its reader could begin with the other

    _, [(claimed, _)], _ = await redis.xautoclaim(queue_name, GROUP, "two", 50, "0-0")
    assert claimed == buffered


async def test_xclaim_with_justid_resets_the_idle_time_and_leaves_the_count_alone(
    redis: Redis, queue_name: str
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    await age(redis, queue_name, "one", entry_id)

    await redis.xclaim(queue_name, GROUP, "one", 0, [entry_id], justid=True)

    assert await idle(redis, queue_name, entry_id) < LEASE
    assert await count(redis, queue_name, entry_id) == 1


async def test_claiming_a_message_or_reading_ones_history_counts_a_delivery_though_nobody_tries_anew(
    redis: Redis, queue_name: str
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    counts = []

    await redis.xclaim(queue_name, GROUP, "one", 0, [entry_id])
    counts.append(await count(redis, queue_name, entry_id))
    await redis.xautoclaim(queue_name, GROUP, "one", 0, "0-0")
    counts.append(await count(redis, queue_name, entry_id))
    await redis.xreadgroup(GROUP, "one", {queue_name: "0"})
    counts.append(await count(redis, queue_name, entry_id))

    assert counts == [2, 3, 4]


# -- nobody checks the owner --------------------------------------------------------------------------------------


async def test_a_heartbeat_by_xclaim_steals_a_message_back_from_its_new_owner(redis: Redis, queue_name: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    await age(redis, queue_name, "one", entry_id)
    await redis.xautoclaim(queue_name, GROUP, "two", LEASE, "0-0")
    assert await owner(redis, queue_name, entry_id) == b"two"

    await redis.xclaim(queue_name, GROUP, "one", 0, [entry_id], justid=True)

    assert await owner(redis, queue_name, entry_id) == b"one"


async def test_an_ack_takes_a_message_from_whoever_owns_it(redis: Redis, queue_name: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1, consumer="one")

    assert await redis.xack(queue_name, GROUP, entry_id) == 1  # there is no place to say who asks
    assert (await redis.xpending(queue_name, GROUP))["pending"] == 0


# -- consumers ----------------------------------------------------------------------------------------------------


async def test_deleting_a_consumer_drops_what_it_had_pending(redis: Redis, queue_name: str) -> None:
    await deliver(redis, queue_name, 3, consumer="one")

    dropped = await redis.xgroup_delconsumer(queue_name, GROUP, "one")

    assert dropped == 3
    assert await redis.xlen(queue_name) == 3
    assert (await redis.xpending(queue_name, GROUP))["pending"] == 0
    assert not await redis.xreadgroup(GROUP, "two", {queue_name: ">"})
    assert (await redis.xautoclaim(queue_name, GROUP, "two", 0, "0-0"))[1] == []


async def test_checking_that_a_consumer_holds_nothing_and_then_deleting_it_loses_what_it_read_in_between(
    redis: Redis, queue_name: str
) -> None:
    await redis.xgroup_create(queue_name, GROUP, mkstream=True)
    await redis.xgroup_createconsumer(queue_name, GROUP, "one")
    await redis.xadd(queue_name, {"a": 1})

    [state] = await redis.xinfo_consumers(queue_name, GROUP)
    await redis.xreadgroup(GROUP, "one", {queue_name: ">"})
    dropped = await redis.xgroup_delconsumer(queue_name, GROUP, "one")

    assert (state["pending"], dropped) == (0, 1)


async def test_consumers_outlive_their_connections(redis: Redis, redis_url: str, queue_name: str) -> None:
    await redis.xgroup_create(queue_name, GROUP, mkstream=True)

    for number in range(10):
        async with Redis.from_url(redis_url) as pod:
            entry_id = await pod.xadd(queue_name, {"a": 1})
            await pod.xreadgroup(GROUP, f"pod-{number}", {queue_name: ">"})
            await pod.xack(queue_name, GROUP, entry_id)

    consumers = await redis.xinfo_consumers(queue_name, GROUP)
    assert [state["pending"] for state in consumers] == [0] * 10
