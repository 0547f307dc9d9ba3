"""What the stream commands do that only the newest Redis has: XACKDEL, XNACK, XREADGROUP CLAIM, XADD IDMP."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from contract.facts.deaf_connection import DeafConnection
from redis.asyncio import Redis
from redis.exceptions import DataError, ResponseError
from servers.kinds import WITH_NEW_COMMANDS
from support import eventually

pytestmark = pytest.mark.parametrize(
    "kind", WITH_NEW_COMMANDS, ids=[kind.name for kind in WITH_NEW_COMMANDS], indirect=True
)

GROUP = "g"
YEAR = 365 * 24 * 3600 * 1000
LEASE = 60_000


async def deliver(redis: Redis, stream: str, count: int, consumer: str = "one") -> list[bytes]:
    """Add so many entries and let the consumer read them."""
    await redis.xgroup_create(stream, GROUP, "0", mkstream=True)
    entry_ids = [await redis.xadd(stream, {"n": number}) for number in range(count)]
    await redis.xreadgroup(GROUP, consumer, {stream: ">"})
    return entry_ids


async def claim_read(redis: Redis, stream: str, idle: int = LEASE, **others: Any) -> list[tuple[Any, ...]]:
    """Read as consumer "two" with CLAIM; the entries, four items each."""
    reply = await redis.xreadgroup(GROUP, "two", {stream: ">"}, claim_min_idle_time=idle, **others)
    return [entry for _, entries in reply for entry in entries]


async def look(redis: Redis, stream: str, entry_id: bytes) -> tuple[bytes, int]:
    """Owner and count of deliveries of a pending entry."""
    [row] = await redis.xpending_range(stream, GROUP, entry_id, entry_id, 1)
    return row["consumer"], row["times_delivered"]


async def age(redis: Redis, stream: str, *entry_ids: bytes, by: int = 2 * LEASE) -> None:
    """Let entries of consumer "one" look idle for so many milliseconds."""
    await redis.xclaim(stream, GROUP, "one", 0, list(entry_ids), idle=by, justid=True)


def by_default(url: str) -> Redis:
    """A client that retries by itself."""
    parts = urlsplit(url)
    return Redis(host=parts.hostname or "", port=parts.port or 0, password=parts.password, socket_timeout=0.3)


async def is_blocked(redis: Redis) -> bool:
    return any("b" in client["flags"] for client in await redis.client_list())


# -- XACKDEL ------------------------------------------------------------------------------------------------------


async def test_xackdel_acked_deletes_what_the_only_group_has_finished(redis: Redis, queue_name: str) -> None:
    entry_ids = await deliver(redis, queue_name, 2)

    told = await redis.xackdel(queue_name, GROUP, *entry_ids, ref_policy="ACKED")

    assert (told, await redis.xlen(queue_name)) == ([1, 1], 0)


@pytest.mark.parametrize("has_read", [False, True])
async def test_xackdel_acked_keeps_what_another_group_has_not_acked(
    redis: Redis, queue_name: str, *, has_read: bool
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    await redis.xgroup_create(queue_name, "other", "0")
    if has_read:
        await redis.xreadgroup("other", "c", {queue_name: ">"})

    told = await redis.xackdel(queue_name, GROUP, entry_id, ref_policy="ACKED")

    assert (told, await redis.xlen(queue_name)) == ([2], 1)
    assert (await redis.xpending(queue_name, GROUP))["pending"] == 0


async def test_an_abandoned_group_keeps_xackdel_and_xtrim_from_deleting_anything(redis: Redis, queue_name: str) -> None:
    entry_ids = await deliver(redis, queue_name, 100)
    await redis.xgroup_create(queue_name, "abandoned", "0")

    told = await redis.xackdel(queue_name, GROUP, *entry_ids, ref_policy="ACKED")
    trimmed = await redis.execute_command("XTRIM", queue_name, "MAXLEN", 0, "ACKED")
    await redis.xgroup_destroy(queue_name, "abandoned")
    trimmed_after_it = await redis.execute_command("XTRIM", queue_name, "MAXLEN", 0, "ACKED")

    assert (told, trimmed, trimmed_after_it) == ([2] * 100, 0, 100)


async def test_xackdel_answers_minus_1_where_it_does_nothing_and_raises_nothing(redis: Redis, queue_name: str) -> None:
    acked, _ = await deliver(redis, queue_name, 2)
    await redis.xack(queue_name, GROUP, acked)

    told = [
        await redis.xackdel(queue_name + "-missing", GROUP, acked, ref_policy="ACKED"),
        await redis.xackdel(queue_name, "missing", acked, ref_policy="ACKED"),
        await redis.xackdel(queue_name, GROUP, acked, ref_policy="ACKED"),
    ]

    assert told == [[-1]] * 3
    assert await redis.xlen(queue_name) == 2  # what was acked before cannot be deleted by it


# -- XNACK --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["XAUTOCLAIM", "XCLAIM", "CLAIM"])
async def test_a_released_entry_is_nobodys_and_can_be_taken_at_once_whatever_the_lease(
    redis: Redis, queue_name: str, how: str
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    assert await redis.xnack(queue_name, GROUP, "SILENT", entry_id) == 1
    assert await look(redis, queue_name, entry_id) == (b"", 0)

    match how:
        case "XAUTOCLAIM":
            await redis.xautoclaim(queue_name, GROUP, "two", YEAR, "0-0")
        case "XCLAIM":
            await redis.xclaim(queue_name, GROUP, "two", YEAR, [entry_id])
        case _:
            await claim_read(redis, queue_name, YEAR)

    assert await look(redis, queue_name, entry_id) == (b"two", 1)


@pytest.mark.parametrize("position", [">", "0"])
async def test_a_plain_reader_never_sees_a_released_entry(redis: Redis, queue_name: str, position: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)

    await redis.xnack(queue_name, GROUP, "SILENT", entry_id)

    read = await redis.xreadgroup(GROUP, "one", {queue_name: position})
    assert [entries for _, entries in read if entries] == []


@pytest.mark.parametrize(("mode", "count"), [("SILENT", 2), ("FAIL", 3), ("FATAL", 2**63 - 1)])
async def test_a_silent_release_undoes_the_delivery_a_failed_one_keeps_it_and_a_fatal_one_exhausts_the_count(
    redis: Redis, queue_name: str, mode: Any, count: int
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    for _ in range(2):
        await redis.xclaim(queue_name, GROUP, "one", 0, [entry_id])

    await redis.xnack(queue_name, GROUP, mode, entry_id)

    assert await look(redis, queue_name, entry_id) == (b"", count)


async def test_a_failed_release_is_delivered_again_without_any_delay(redis: Redis, queue_name: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)

    for _ in range(100):
        await redis.xnack(queue_name, GROUP, "FAIL", entry_id)
        assert len(await claim_read(redis, queue_name)) == 1

    assert await look(redis, queue_name, entry_id) == (b"two", 101)


async def test_a_release_takes_a_message_from_whoever_owns_it(redis: Redis, queue_name: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1, consumer="one")
    await redis.xclaim(queue_name, GROUP, "two", 0, [entry_id])

    assert await redis.xnack(queue_name, GROUP, "SILENT", entry_id) == 1  # there is no place to say who asks

    assert await look(redis, queue_name, entry_id) == (b"", 1)


# -- XREADGROUP CLAIM ---------------------------------------------------------------------------------------------


async def test_entries_read_with_claim_have_four_items_and_without_it_two(redis: Redis, queue_name: str) -> None:
    [stale] = await deliver(redis, queue_name, 1)
    await age(redis, queue_name, stale)
    new = [await redis.xadd(queue_name, {"n": number}) for number in (1, 2)]

    [claimed, read] = await claim_read(redis, queue_name, count=2)
    [[_, [plain]]] = await redis.xreadgroup(GROUP, "two", {queue_name: ">"})

    assert (claimed[:2], claimed[3]) == ((stale, {b"n": b"0"}), 1)  # one delivery before this one
    assert claimed[2] >= 2 * LEASE
    assert read == (new[0], {b"n": b"1"}, 0, 0)
    assert plain == (new[1], {b"n": b"2"})


async def test_the_idle_time_of_a_released_entry_begins_in_1970(redis: Redis, queue_name: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    await redis.xnack(queue_name, GROUP, "SILENT", entry_id)

    [[_, _, idle, _]] = await claim_read(redis, queue_name)

    assert idle > 50 * YEAR


async def test_a_blocked_claiming_reader_wakes_by_itself_when_an_entry_passes_its_idle_time(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)

    async with Redis.from_url(redis_url, socket_timeout=90) as client:
        [[claimed, *_]] = await claim_read(client, queue_name, 500, block=60_000)

    assert claimed == entry_id


async def test_a_blocked_claiming_reader_wakes_when_an_entry_is_released(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)

    async with Redis.from_url(redis_url, socket_timeout=90) as client:
        reading = asyncio.create_task(claim_read(client, queue_name, YEAR, block=60_000))
        await eventually(lambda: is_blocked(redis))
        await redis.xnack(queue_name, GROUP, "SILENT", entry_id)
        [[claimed, *_]] = await reading

    assert claimed == entry_id


async def test_a_claiming_read_leaves_entries_whose_message_is_gone_pending_and_xautoclaim_clears_them(
    redis: Redis, queue_name: str
) -> None:
    gone, left = await deliver(redis, queue_name, 2)
    await age(redis, queue_name, gone, left)
    await redis.xdel(queue_name, gone)

    claimed = await claim_read(redis, queue_name)

    assert [entry_id for entry_id, *_ in claimed] == [left]
    assert await look(redis, queue_name, gone) == (b"one", 1)
    assert (await redis.xautoclaim(queue_name, GROUP, "two", LEASE, "0-0"))[2] == [gone]


# -- XADD IDMP ----------------------------------------------------------------------------------------------------


async def test_an_xadd_with_idmp_whose_answer_is_late_is_sent_again_and_written_once(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with DeafConnection(redis_url, deaf_after=b"XADD").open() as url, by_default(url) as client:
        entry_id = await client.xadd(queue_name, {"a": 1}, idmp=("producer", b"1"))

    assert [written for written, _ in await redis.xrange(queue_name)] == [entry_id]


async def test_redis_py_refuses_an_idmp_duration_that_the_server_takes(redis: Redis, queue_name: str) -> None:
    await redis.xadd(queue_name, {"a": 1})

    with pytest.raises(DataError):
        await redis.xcfgset(queue_name, idmp_duration=301)

    await redis.execute_command("XCFGSET", queue_name, "IDMP-DURATION", 86_400, "IDMP-MAXSIZE", 10_000)
    for too_much in (("IDMP-DURATION", 86_401), ("IDMP-MAXSIZE", 10_001)):
        with pytest.raises(ResponseError, match="must be between"):
            await redis.execute_command("XCFGSET", queue_name, *too_much)
