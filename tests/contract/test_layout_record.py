"""The record of a queue's partitions on real servers, created once, followed by all, and never set back."""

import asyncio
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.partitions import Layout, partition_queue
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key, read_layouts
from ingest.queue.redis.connection import control_client

pytestmark = pytest.mark.topologies


async def closed(redis: Redis, queue: str) -> bool:
    return await redis.hexists(Keys.of(queue).clock, "closed")


def url_of(server: ValkeyServer, user: str) -> str:
    return urlsplit(server.url)._replace(netloc=f"{user}:x@127.0.0.1:{server.port}").geturl()


async def test_a_queue_with_one_partition_has_no_record(redis: Redis, queue_name: str) -> None:
    layout = await LayoutRecord(redis, queue_name).read()

    assert layout == Layout(queue_name)
    assert await redis.keys(f"ingest:{{{queue_name}*") == []


async def test_several_partitions_are_recorded_by_whoever_comes_first(redis: Redis, queue_name: str) -> None:
    first = await asyncio.gather(*(LayoutRecord(redis, queue_name, 6).read() for _ in range(5)))
    later = await LayoutRecord(redis, queue_name, 2).read()

    assert {*first, later} == {Layout(queue_name, 6, (), 1)}
    assert await LayoutRecord(redis, queue_name).read() == later


async def test_a_queue_from_before_is_read_as_well_and_takes_no_further_orders(redis: Redis, queue_name: str) -> None:
    await redis.xadd(Keys.of(queue_name).stream, {"order_id": "1"})

    layout = await LayoutRecord(redis, queue_name, 6).read()

    assert layout == Layout(queue_name, 6, (1,), 1)
    assert layout.queues == (*(f"{queue_name}:{number}" for number in range(6)), queue_name)
    assert await closed(redis, queue_name)
    assert not any([await closed(redis, queue) for queue in layout.current])


async def test_the_plain_queue_is_open_again_when_it_is_the_only_partition(redis: Redis, queue_name: str) -> None:
    record = LayoutRecord(redis, queue_name, 6)
    await record.read()

    written = await record.write(Layout(queue_name, 1, (6,), 2))

    assert written == await record.read() == Layout(queue_name, 1, (6,), 2)
    assert not await closed(redis, queue_name)


async def test_of_two_changes_one_is_recorded(redis: Redis, queue_name: str) -> None:
    record = LayoutRecord(redis, queue_name, 6)
    await record.read()
    changes = [Layout(queue_name, number, (6,), 2) for number in (2, 3, 4)]

    written = await asyncio.gather(*(LayoutRecord(redis, queue_name).write(change) for change in changes))

    assert len({*written}) == 1
    assert written[0] in changes


async def test_a_change_that_a_failover_has_lost_is_recorded_again(redis: Redis, queue_name: str) -> None:
    record = LayoutRecord(redis, queue_name, 2)
    await record.read()
    changed = await record.write(Layout(queue_name, 6, (2,), 2))
    await record.read()
    await redis.hset(layout_key(queue_name), mapping={"partitions": "2", "former": "", "generation": "1"})

    assert await record.read() == changed
    assert await LayoutRecord(redis, queue_name, 2).read() == changed


async def test_a_recent_layout_costs_no_command(redis: Redis, queue_name: str) -> None:
    record = LayoutRecord(redis, queue_name)
    await record.recent()
    await LayoutRecord(redis, queue_name).write(Layout(queue_name, 6, (1,), 1))

    assert (await record.recent()).partitions == 1
    assert (await record.read()).partitions == record.layout.partitions == 6


@pytest.mark.each_server
async def test_a_user_without_rights_to_the_record_uses_one_partition(
    own_redis: Redis, own_valkey: ValkeyServer, queue_name: str
) -> None:
    await own_redis.execute_command("ACL", "SETUSER", "old", "on", "nopass", "~*", "+@all", "-hmget")  # type: ignore[no-untyped-call]
    async with control_client(url_of(own_valkey, "old")) as client:
        assert await LayoutRecord(client, queue_name).recent() == Layout(queue_name)
        for record in (LayoutRecord(client, queue_name, 6).recent(), LayoutRecord(client, queue_name).read()):
            with pytest.raises(QueueUnavailable, match="denies access"):
                await record


@pytest.mark.each_server
async def test_a_producer_that_may_not_create_the_record_waits_for_a_worker(
    own_redis: Redis, own_valkey: ValkeyServer, queue_name: str
) -> None:
    await own_redis.execute_command("ACL", "SETUSER", "producer", "on", "nopass", "~*", "+@all", "-hset")  # type: ignore[no-untyped-call]
    async with control_client(url_of(own_valkey, "producer")) as client:
        record = LayoutRecord(client, queue_name, 6)
        with pytest.raises(QueueUnavailable, match="when its first worker starts") as failure:
            await record.read()
        assert not isinstance(failure.value, UserError)

        await LayoutRecord(own_redis, queue_name, 6).read()

        assert (await record.read()).partitions == 6


async def test_operators_read_several_layouts_and_create_none(redis: Redis, queue_name: str) -> None:
    queues = [f"{queue_name}/{name}" for name in ("plain", "new", "recorded")]
    recorded = await LayoutRecord(redis, queues[2], 3).read()

    layouts = await read_layouts(redis, dict(zip(queues, (1, 6, 1), strict=True)))

    assert layouts == dict(zip(queues, (Layout(queues[0]), Layout(queues[1], 6, (1,)), recorded), strict=True))
    assert await redis.keys(f"ingest:{{{queues[1]}*") == []
    assert await read_layouts(redis, {}) == {}


async def test_a_new_partition_is_open_even_if_it_was_closed_before(redis: Redis, queue_name: str) -> None:
    partition = partition_queue(queue_name, 1, 6)
    await redis.hset(Keys.of(partition).clock, "closed", "7")

    await LayoutRecord(redis, queue_name, 6).read()

    assert not await closed(redis, partition)
