"""The losses of a failover, a restart or a flush, and the limits of a group's lag."""

from pathlib import Path

import pytest
from consumers import Consumer
from contract.facts.pair import replicated
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from servers.kinds import KINDS, Kind
from support import eventually

from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.partition_monitor import PartitionMonitor

pytestmark = pytest.mark.each_server

GROUP = "ingest"
KNOW_WAITAOF = [kind for kind in KINDS if kind.product == "valkey" or kind.is_redis_since(7, 2)]


# -- confirmed writes --------------------------------------------------------------------------------------------


async def test_a_failover_can_lose_an_entry_whose_xadd_was_answered(kind: Kind) -> None:
    async with replicated(kind) as pair:
        await pair.on_primary.xadd("s", {"n": 1})
        await eventually(lambda: pair.on_replica.exists("s"))
        pair.line.go_deaf()

        assert await pair.on_primary.xadd("s", {"n": 2})
        pair.primary.kill()
        await pair.on_replica.execute_command("REPLICAOF NO ONE")

        assert [fields for _, fields in await pair.on_replica.xrange("s")] == [{b"n": b"1"}]


@pytest.mark.parametrize("kind", KNOW_WAITAOF, ids=[kind.name for kind in KNOW_WAITAOF], indirect=True)
async def test_waitaof_confirms_that_what_its_own_connection_wrote_is_on_disk(kind: Kind, tmp_path: Path) -> None:
    with kind.server(tmp_path / "server", appendonly="yes", appendfsync="no") as server:
        async with (
            Redis.from_url(server.url, socket_timeout=60) as redis,
            redis.client() as writer,
            redis.client() as other,
        ):
            await writer.xadd("s", {"a": 1})

            unwritten = await writer.waitaof(1, 0, 100), await other.waitaof(1, 0, 100)
            await redis.config_set("appendfsync", "everysec")
            written = await writer.waitaof(1, 0, 30_000)

    assert unwritten == ([0, 0], [1, 0])
    assert written == [1, 0]


# -- a lost group -------------------------------------------------------------------------------------------------


async def test_after_a_restart_without_persistence_there_is_no_group(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    await own_redis.xgroup_create("s", GROUP, mkstream=True)
    own_valkey.restart()

    async with Redis.from_url(own_valkey.url) as redis:
        with pytest.raises(ResponseError, match="NOGROUP"):
            await redis.xreadgroup(GROUP, "c", {"s": ">"})


async def test_after_a_flush_there_is_no_group(own_redis: Redis) -> None:
    await own_redis.xgroup_create("s", GROUP, mkstream=True)
    await own_redis.flushall()

    with pytest.raises(ResponseError, match="NOGROUP"):
        await own_redis.xreadgroup(GROUP, "c", {"s": ">"})


@pytest.mark.parametrize(("start", "seen"), [("$", []), ("0", [b"before", b"meanwhile"])])
async def test_a_group_made_again_at_the_end_skips_what_was_added_meanwhile_and_one_from_0_sees_all_again(
    redis: Redis, queue_name: str, start: str, seen: list[bytes]
) -> None:
    await redis.xgroup_create(queue_name, GROUP, "0", mkstream=True)
    await redis.xadd(queue_name, {"order_id": "before"})
    await redis.xreadgroup(GROUP, "c", {queue_name: ">"})
    await redis.xgroup_destroy(queue_name, GROUP)
    await redis.xadd(queue_name, {"order_id": "meanwhile"})

    await redis.xgroup_create(queue_name, GROUP, start)

    read = await redis.xreadgroup(GROUP, "c", {queue_name: ">"})
    assert [fields[b"order_id"] for _, entries in read for _, fields in entries] == seen


# -- without replicas --------------------------------------------------------------------------


async def test_the_lag_does_not_see_pending_released_or_scheduled_work_and_the_monitor_does(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    keys = Keys.of(queue_name)
    async with Consumer.open(redis_url, queue_name, GROUP, "one", 1.0) as consumer:
        await consumer.ensure_group()
        for order_id in "abc":
            await redis.xadd(keys.stream, {"order_id": order_id})

        _, given_back, scheduled = await consumer.read(3, 0.001)
        await redis.xclaim(keys.stream, GROUP, "one", 0, [given_back.entry.id], time=0, justid=True)
        await consumer.reschedule(scheduled, 60.0, 2)

    [group] = await redis.xinfo_groups(keys.stream)
    state = await PartitionMonitor(redis, queue_name, GROUP).state()
    assert group["lag"] == 0
    assert (state.depth, state.pending, state.retries) == (0, 2, 1)
