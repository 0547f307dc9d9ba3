"""The producer on a real server. When `enqueue` returns, Redis contains each ID once, whatever happened during the call."""

import asyncio
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from consumers import Consumer
from listener import connected_to, either, listening
from redis.asyncio import Redis
from servers.kinds import Kind
from support import eventually

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.orders.order import InvalidOrderId
from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.redis.connection import QueueRefused, control_client
from ingest.queue.redis.scripts import load

IDS = [f"order-{number}" for number in range(2 * BATCH + 7)]


async def queued(redis: Redis, keys: Keys) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(keys.stream)]


class CuttingProxy:
    """Stands between a client and Redis, and cuts the connection in place of the replies to batches.

    The batch has then been taken in, and the client cannot detect that.
    """

    def __init__(self, port: int, cuts: int) -> None:
        self._port = port
        self.cuts = cuts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = b""
        async with connected_to(self._port) as (redis_reader, redis_writer):

            async def requests() -> None:
                nonlocal asked
                while data := await reader.read(1 << 16):
                    asked = (asked + data)[-(1 << 17) :]
                    redis_writer.write(data)

            async def replies() -> None:
                nonlocal asked
                while data := await redis_reader.read(1 << 16):
                    if b"EVALSHA" in asked and self.cuts and data.startswith((b":", b"*")):
                        self.cuts -= 1
                        return
                    asked = b""
                    writer.write(data)

            await either(requests(), replies())


async def test_all_ids_are_in_the_stream_in_order(redis: Redis, keys: Keys, redis_url: str, queue_name: str) -> None:
    async with Producer.connect(redis_url, queue_name) as producer:
        taken = await producer.enqueue(IDS)

    assert taken == len(IDS)
    assert await queued(redis, keys) == IDS


async def test_an_id_announced_twice_is_queued_twice(redis: Redis, keys: Keys, redis_url: str, queue_name: str) -> None:
    async with Producer.connect(redis_url, queue_name) as producer:
        await producer.enqueue(["a", "a"])
        await producer.enqueue(["a"])

    assert await queued(redis, keys) == ["a", "a", "a"]


async def test_nothing_to_announce_is_nothing_done(redis: Redis, keys: Keys, redis_url: str, queue_name: str) -> None:
    async with Producer.connect(redis_url, queue_name) as producer:
        taken = await producer.enqueue([])

    assert (taken, await redis.exists(keys.stream)) == (0, 0)


async def test_one_invalid_id_and_nothing_is_sent(redis: Redis, keys: Keys, redis_url: str, queue_name: str) -> None:
    async with Producer.connect(redis_url, queue_name) as producer:
        with pytest.raises(InvalidOrderId):
            await producer.enqueue([*IDS, "no\norder"])

    assert await redis.exists(keys.stream) == 0


@pytest.mark.parametrize("cuts", [1, 4])
async def test_a_batch_whose_reply_is_lost_is_sent_again_and_added_once(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str, cuts: int
) -> None:
    told: list[str] = []
    proxy = CuttingProxy(urlsplit(redis_url).port or 0, cuts)

    async with listening(proxy.serve) as port:
        url = redis_url.replace(f":{urlsplit(redis_url).port}/", f":{port}/")
        async with Producer.connect(url, queue_name, on_wait=told.append) as producer:
            taken = await producer.enqueue(IDS)

    assert proxy.cuts == 0
    assert told
    assert taken == len(IDS)
    assert await queued(redis, keys) == IDS


async def test_a_batch_that_is_sent_again_or_comes_late_is_added_once(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with control_client(redis_url) as client:
        enqueue = load(client, "enqueue")
        script_keys = [keys.stream, keys.records + "producer", keys.clock, keys.pushed]
        batch = ["producer", 1, 0, 1, 2, "a", "b"]
        added = [await enqueue(script_keys, [0, *batch]) for _ in range(3)]

        next_one = await enqueue(script_keys, [0, "producer", 2, 0, 1, 1, "c"])
        late = await enqueue(script_keys, [0, *batch])

    assert added == [[2], [0], [0]]
    assert (next_one, late) == ([1], [0])
    assert await queued(redis, keys) == ["a", "b", "c"]
    assert 0 < await redis.ttl(keys.records + "producer") <= 600


@pytest.mark.each_server
async def test_out_of_memory_is_waited_for(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    told: list[str] = []
    keys = Keys.of("orders")
    await own_redis.config_set("maxmemory", 1)

    async with Producer.connect(own_valkey.url, "orders", on_wait=told.append) as producer:
        enqueueing = asyncio.create_task(producer.enqueue(IDS))
        await eventually(lambda: _now(bool(told)))
        before = await own_redis.keys("*")
        await own_redis.config_set("maxmemory", 0)
        taken = await enqueueing

    assert before == []
    assert told == ["Redis is out of memory; waiting for the workers to make room"]
    assert taken == len(IDS)
    assert await queued(own_redis, keys) == IDS


async def _now(value: bool) -> bool:  # noqa: FBT001  the condition itself
    return value


async def test_above_its_limit_the_backlog_is_waited_for(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    told: list[str] = []
    handled: list[str | None] = []
    lengths: list[int] = []

    async with (
        Consumer.open(redis_url, queue_name, "ingest", "one", 1.0) as consumer,
        Producer.connect(redis_url, queue_name, backlog_limit=10, on_wait=told.append) as producer,
    ):
        await consumer.ensure_group()
        enqueueing = asyncio.create_task(producer.enqueue(IDS[:35]))
        await eventually(lambda: _now(bool(told)))
        while len(handled) < 35:
            lengths.append(await redis.xlen(keys.stream))
            deliveries = await consumer.read(4, 0.01)
            handled += [delivery.order_id for delivery in deliveries]
            await consumer.ack([delivery.entry for delivery in deliveries])
        taken = await enqueueing

    assert taken == 35
    assert handled == IDS[:35]
    assert max(lengths) == 10
    assert set(told) == {"the backlog is at its limit of 10 orders; waiting for the workers"}


async def test_a_limit_that_is_met_exactly_does_not_wait(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    told: list[str] = []

    async with Producer.connect(redis_url, queue_name, backlog_limit=10, on_wait=told.append) as producer:
        await producer.enqueue(IDS[:10])

    assert (await redis.xlen(keys.stream), told) == (10, [])


async def test_cancelled_it_has_taken_in_whole_batches_from_the_front(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    told: list[str] = []

    async with Producer.connect(redis_url, queue_name, backlog_limit=BATCH + 1, on_wait=told.append) as producer:
        enqueueing = asyncio.create_task(producer.enqueue(IDS))
        await eventually(lambda: _now(bool(told)))
        enqueueing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enqueueing

    assert await queued(redis, keys) == IDS[:BATCH]


async def test_a_server_that_is_unavailable_is_waited_for(own_valkey: ValkeyServer) -> None:
    told: list[str] = []
    own_valkey.stop("nosave")

    async with Producer.connect(own_valkey.url, "orders", on_wait=told.append) as producer:
        enqueueing = asyncio.create_task(producer.enqueue(IDS))
        await eventually(lambda: _now(bool(told)))
        own_valkey.start()
        taken = await enqueueing

    assert taken == len(IDS)
    assert told[0].startswith("Redis cannot be reached")
    assert own_valkey.password not in "".join(told)
    async with Redis.from_url(own_valkey.url) as redis:
        assert await queued(redis, Keys.of("orders")) == IDS


async def test_producers_at_once_lose_and_double_nothing(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    parts = [[f"p{part}-{number}" for number in range(700)] for part in range(4)]

    async with Producer.connect(redis_url, queue_name) as one, Producer.connect(redis_url, queue_name) as two:
        await asyncio.gather(
            *(producer.enqueue(part) for producer, part in zip((one, two, one, two), parts, strict=True))
        )

    assert Counter(await queued(redis, keys)) == Counter(order_id for part in parts for order_id in part)


async def test_a_refused_credential_is_not_waited_for(redis_url: str, queue_name: str) -> None:
    password = urlsplit(redis_url).password or ""

    async with Producer.connect(redis_url.replace(password, "wrong"), queue_name) as producer:
        with pytest.raises(QueueRefused):
            await producer.enqueue(["a"])


async def test_a_key_of_another_type_is_not_waited_for(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    await redis.set(keys.stream, "not a stream")

    async with Producer.connect(redis_url, queue_name) as producer:
        with pytest.raises(UserError, match="`ingest doctor` names the key"):
            await producer.enqueue(["a"])


@pytest.mark.each_server
async def test_a_right_to_a_key_that_is_missing_leads_to_who_names_the_key(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    await own_redis.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">pw", "~other", "+@all")

    async with Producer.connect(f"redis://limited:pw@127.0.0.1:{own_valkey.port}/0", "orders") as producer:
        with pytest.raises(QueueRefused, match="`ingest doctor` names the key"):
            await producer.enqueue(["a"])


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_password_that_is_missing_is_named(own_valkey: ValkeyServer, protocol: int) -> None:
    async with Producer.connect(f"redis://127.0.0.1:{own_valkey.port}/0?protocol={protocol}", "orders") as producer:
        with pytest.raises(QueueRefused, match="requires a password, and none is given"):
            await producer.enqueue(["a"])


@pytest.mark.each_server
async def test_a_right_that_is_missing_is_not_waited_for(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    await own_redis.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "+@all", "-xadd")

    async with Producer.connect(f"redis://limited:pw@127.0.0.1:{own_valkey.port}/0", "orders") as producer:
        with pytest.raises(QueueRefused, match="Redis denies access: "):
            await producer.enqueue(["a"])


async def test_a_node_of_a_cluster_that_has_not_our_keys_is_not_waited_for(kind: Kind, tmp_path: Path) -> None:
    one, other = (kind.server(tmp_path / name, cluster_enabled="yes", cluster_port=str(free_port())) for name in "ab")
    with one, other:
        async with Redis.from_url(one.url) as first, Redis.from_url(other.url) as second:
            ours = int(await first.execute_command("CLUSTER", "KEYSLOT", Keys.of("orders").stream))
            await first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, ours - 1, ours + 1, 16383)
            await second.execute_command("CLUSTER", "ADDSLOTS", ours)
            bus = other._options["cluster-port"]
            await first.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus)

            async def is_whole() -> bool:
                return "cluster_state:ok" in str(await first.execute_command("CLUSTER", "INFO"))

            await eventually(is_whole)

        async with Producer.connect(one.url, "orders") as producer:
            with pytest.raises(QueueRefused, match="on another node"):
                await producer.enqueue(["a"])


@pytest.mark.each_server
async def test_documents_and_idempotency_keys_leave_a_quarter_of_the_memory_to_ids(own_redis: Redis) -> None:
    document = b'{"note":"%s"}' % (b"x" * 100_000)
    await own_redis.config_set("maxmemory", 64_000_000)
    producer = Producer(own_redis, "orders")

    async def push_on() -> None:
        for number in range(1_000):
            await producer.try_enqueue(Announcement(f"pushed-{number}", document=document))

    with pytest.raises(QueueUnavailable, match="three quarters"):
        await push_on()
    used = (await own_redis.info("memory"))["used_memory"]
    await own_redis.config_set("maxmemory", used)
    with pytest.raises(QueueUnavailable, match="three quarters"):
        await producer.try_enqueue("keyed", idempotency_key="k")
    await own_redis.config_set("maxmemory", 64_000_000)
    await producer.try_enqueue(["a", "b"])

    assert 0.7 * 64_000_000 < used < 0.8 * 64_000_000
