"""What `XNACK` does, which only the newest Redis has."""

from typing import Any

import pytest
from redis.asyncio import Redis
from servers.kinds import WITH_XNACK

pytestmark = pytest.mark.parametrize("kind", WITH_XNACK, ids=[kind.name for kind in WITH_XNACK], indirect=True)

GROUP = "g"
YEAR = 365 * 24 * 3600 * 1000


async def deliver(redis: Redis, stream: str) -> bytes:
    """Add an entry, and let consumer "one" read it."""
    await redis.xgroup_create(stream, GROUP, "0", mkstream=True)
    entry_id: bytes = await redis.xadd(stream, {"order_id": "a"})
    await redis.xreadgroup(GROUP, "one", {stream: ">"})
    return entry_id


async def look(redis: Redis, stream: str, entry_id: bytes) -> tuple[bytes, int]:
    """Owner and count of deliveries of a pending entry."""
    [row] = await redis.xpending_range(stream, GROUP, entry_id, entry_id, 1)
    return row["consumer"], row["times_delivered"]


async def test_a_released_entry_has_no_owner_and_can_be_claimed_whatever_the_lease(
    redis: Redis, queue_name: str
) -> None:
    entry_id = await deliver(redis, queue_name)
    assert await redis.xnack(queue_name, GROUP, "SILENT", entry_id) == 1
    assert await look(redis, queue_name, entry_id) == (b"", 0)

    await redis.xclaim(queue_name, GROUP, "two", YEAR, [entry_id])

    assert await look(redis, queue_name, entry_id) == (b"two", 1)


@pytest.mark.parametrize("position", [">", "0"])
async def test_a_plain_reader_never_sees_a_released_entry(redis: Redis, queue_name: str, position: str) -> None:
    entry_id = await deliver(redis, queue_name)

    await redis.xnack(queue_name, GROUP, "SILENT", entry_id)

    read = await redis.xreadgroup(GROUP, "one", {queue_name: position})
    assert [entries for _, entries in read if entries] == []


@pytest.mark.parametrize(("mode", "count"), [("SILENT", 1), ("FAIL", 2)])
async def test_a_silent_release_undoes_the_delivery_and_a_failed_one_keeps_it(
    redis: Redis, queue_name: str, mode: Any, count: int
) -> None:
    entry_id = await deliver(redis, queue_name)
    await redis.xclaim(queue_name, GROUP, "two", 0, [entry_id])

    # The command takes no argument for the caller.
    await redis.xnack(queue_name, GROUP, mode, entry_id)

    assert await look(redis, queue_name, entry_id) == (b"", count)
