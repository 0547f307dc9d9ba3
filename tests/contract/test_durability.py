"""A producer confirms orders on a real server when they are on its disk or at its replicas, and not before."""

import asyncio
from pathlib import Path

import pytest
from contract.facts.pair import replicated
from redis.asyncio import Redis
from servers.kinds import KINDS, Kind
from support import eventually

from ingest.domain.deliveries.accepted import Accepted, Durability
from ingest.domain.errors import QueueUnavailable
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.drain_rate import Backlog
from ingest.queue.produce.durability import ProvenRun
from ingest.queue.produce.enqueue_script import Destination, EnqueueScript
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.produce.producer_errors import BacklogFull, CannotConfirm
from ingest.queue.produce.proofs import Proofs
from ingest.queue.produce.submission import submissions
from ingest.queue.produce.sync_producer import SyncProducer
from ingest.queue.redis.connection import control_client

pytestmark = pytest.mark.each_server

KEYS = Keys.of("orders")
NAMES = [f"order-{number}" for number in range(3 * BATCH + 7)]
KNOW_WAITAOF = [kind for kind in KINDS if kind.product == "valkey" or kind.is_redis_since(7, 2)]
# Before Redis 8, it may answer before the data is on the disk. Valkey still does.
RELIABLE = [kind for kind in KINDS if kind.is_redis_since(8)]
OTHERS = [kind for kind in KINDS if kind not in RELIABLE]

reliable = pytest.mark.parametrize("kind", RELIABLE, ids=[kind.name for kind in RELIABLE], indirect=True)
others = pytest.mark.parametrize("kind", OTHERS, ids=[kind.name for kind in OTHERS], indirect=True)


def with_disk(kind: Kind, folder: Path, appendfsync: str) -> ValkeyServer:
    return kind.server(folder / "server", appendonly="yes", appendfsync=appendfsync)


async def queued(redis: Redis) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(KEYS.stream)]


# -- on the disk ----------------------------------------------------------------------------------------------------


async def test_what_is_synced_each_time_is_confirmed_in_order_and_once(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "always") as server:
        async with (
            Redis.from_url(server.url) as redis,
            Producer.connect(server.url, durability=Durability.FSYNC) as producer,
        ):
            await producer.check_durability()
            assert await producer.try_announce(NAMES) == Accepted(len(NAMES), 0)
            assert await asyncio.gather(*(producer.enqueue(name) for name in NAMES)) == [1] * len(NAMES)
            assert await queued(redis) == NAMES * 2


@reliable
async def test_nothing_is_confirmed_that_is_not_on_the_disk_and_all_is_as_soon_as_it_is(
    kind: Kind, tmp_path: Path
) -> None:
    with with_disk(kind, tmp_path, "no") as server:
        async with (
            Redis.from_url(server.url) as redis,
            Producer.connect(server.url, durability=Durability.FSYNC) as producer,
        ):
            calls = [asyncio.create_task(producer.enqueue(name)) for name in NAMES[:20]]
            await eventually(lambda: redis.xlen(KEYS.stream))
            doubtful = asyncio.create_task(producer.try_announce("doubtful"))
            with pytest.raises(QueueUnavailable, match="it may have been accepted"):
                await doubtful
            assert not any(call.done() for call in calls)

            await redis.config_set("appendfsync", "everysec")
            await asyncio.gather(*calls)

            assert sorted(await queued(redis)) == sorted([*NAMES[:20], "doubtful"])


@reliable
async def test_what_was_added_before_is_confirmed_only_when_it_is_on_the_disk(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "no") as server:
        async with (
            Redis.from_url(server.url) as redis,
            Producer.connect(server.url) as careless,
            Producer.connect(server.url, durability=Durability.FSYNC) as careful,
        ):
            await careless.try_announce("a", idempotency_key="k", coalesce=60)
            for options in ({"idempotency_key": "k"}, {"coalesce": 60.0}):
                with pytest.raises(QueueUnavailable, match="it may have been accepted"):
                    await careful.try_announce("a", **options)  # type: ignore[arg-type]

            assert await queued(redis) == ["a"]


@reliable
async def test_batches_wait_for_the_disk_together(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "no") as server:
        async with (
            Redis.from_url(server.url) as redis,
            Producer.connect(server.url, durability=Durability.FSYNC) as producer,
        ):
            call = asyncio.create_task(producer.enqueue(NAMES))
            await eventually(lambda: _is(redis, len(NAMES)))
            assert not call.done()
            await redis.config_set("appendfsync", "everysec")
            assert await call == len(NAMES)
            assert await queued(redis) == NAMES


async def _is(redis: Redis, length: int) -> bool:
    return int(await redis.xlen(KEYS.stream)) == length


async def test_that_there_is_no_room_is_told_without_waiting_for_the_disk(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "always") as server:
        async with (
            Redis.from_url(server.url) as redis,
            Producer.connect(server.url, durability=Durability.FSYNC, backlog_limit=2) as producer,
        ):
            await producer.try_announce(["a", "b"])
            if kind in RELIABLE:
                await redis.config_set("appendfsync", "no")
            for _ in range(20):
                with pytest.raises(BacklogFull):
                    await producer.try_announce("c")
            await redis.config_set("appendfsync", "always")
            await redis.delete(KEYS.stream)
            assert await producer.try_announce("c") == Accepted(1, 0)


async def test_a_batch_that_is_cancelled_at_any_moment_returns_its_connection(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "always") as server:
        async with control_client(server.url, connections=1) as redis:
            proofs = Proofs(redis, f"{KEYS.records}confirmed", Durability.FSYNC, 1)
            destination = Destination(KEYS, KEYS.lanes[1], 0, 60.0, 1)
            backlog = Backlog(redis, KEYS.stream)
            script = EnqueueScript(redis, destination, "one", backlog, ProvenRun(redis, proofs.find))
            await proofs.find()
            for moment in range(50):
                adding = asyncio.create_task(script.add(moment, submissions(["a"], None, BATCH), lambda: None))
                for _ in range(moment):
                    await asyncio.sleep(0)

                adding.cancel()
                await asyncio.wait([adding])

                assert await redis.ping()


async def test_a_server_that_has_forgotten_the_script_is_told_it_again(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "always") as server:
        async with (
            Redis.from_url(server.url) as redis,
            Producer.connect(server.url, durability=Durability.FSYNC) as producer,
        ):
            await producer.try_announce("a")
            await redis.script_flush()
            await producer.try_announce("b")
            server.kill()
            server.start()
            await producer.enqueue("c")
        async with Redis.from_url(server.url) as redis:
            assert await queued(redis) == ["a", "b", "c"]


@others
async def test_a_server_that_stops_syncing_each_time_confirms_nothing_more(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "always") as server:
        async with (
            Redis.from_url(server.url) as redis,
            Producer.connect(server.url, durability=Durability.FSYNC) as producer,
        ):
            await producer.try_announce("a")
            await redis.config_set("appendfsync", "everysec")
            with pytest.raises(QueueUnavailable, match="it may have been accepted"):
                await producer.try_announce("b")


# -- at replicas ----------------------------------------------------------------------------------------------------


async def test_what_is_at_a_replica_is_confirmed_and_what_is_not_is_not(kind: Kind) -> None:
    async with (
        replicated(kind) as pair,
        Producer.connect(pair.primary.url, durability=Durability.REPLICATED) as producer,
    ):
        await producer.check_durability()
        assert await producer.try_announce("a") == Accepted(1, 0)
        assert await pair.on_replica.xlen(KEYS.stream) == 1
        pair.line.go_deaf()

        with pytest.raises(QueueUnavailable, match="0 of 1 replicas"):
            await producer.try_announce("b")


# -- what cannot be confirmed ---------------------------------------------------------------------------------------


async def refusal(url: str, durability: Durability, replicas: int = 1) -> str:
    async with Producer.connect(url, durability=durability, replicas=replicas) as producer:
        with pytest.raises(CannotConfirm) as refused:
            await producer.check_durability()
        with pytest.raises(QueueUnavailable):
            await producer.try_announce("a")
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_a_server_without_an_append_only_file_cannot_confirm(own_valkey: ValkeyServer) -> None:
    expected = "durability fsync (INGEST_DURABILITY) is not possible with this Redis: it has no append-only file; set appendonly yes"
    assert await refusal(own_valkey.url, Durability.FSYNC) == expected


async def test_a_server_without_replicas_cannot_confirm_that_they_have_it(own_valkey: ValkeyServer) -> None:
    said = await refusal(own_valkey.url, Durability.REPLICATED, replicas=2)
    assert said.endswith("at 0 of 2 replicas within 4 s")


@reliable
async def test_a_disk_that_is_never_synced_cannot_confirm(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "no") as server:
        assert (await refusal(server.url, Durability.FSYNC)).endswith("not on Redis' disk within 4 s")


@others
@pytest.mark.parametrize(
    ("setting", "value"), [("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes")], ids=["seldom", "rewrite"]
)
async def test_a_server_that_can_neither_tell_nor_syncs_each_time_cannot_confirm(
    kind: Kind, tmp_path: Path, setting: str, value: str
) -> None:
    with with_disk(kind, tmp_path, "always") as server:
        async with Redis.from_url(server.url) as redis:
            await redis.config_set(setting, value)
        said = await refusal(server.url, Durability.FSYNC)
        about = "its WAITAOF may reply too early" if kind in KNOW_WAITAOF else "it does not support WAITAOF"
        assert f": {about}" in said
        assert said.endswith(f", and {setting} is {value}; set appendfsync always, or use Redis 8")


@pytest.mark.parametrize(("durability", "command"), [(Durability.FSYNC, "WAITAOF"), (Durability.REPLICATED, "WAIT")])
async def test_a_user_who_may_not_wait_cannot_confirm(
    kind: Kind, tmp_path: Path, durability: Durability, command: str
) -> None:
    with with_disk(kind, tmp_path, "everysec") as server:
        async with Redis.from_url(server.url) as redis:
            denied = ["-wait", "-config"] + ["-waitaof"] * (kind in KNOW_WAITAOF)
            await redis.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", *denied)
        said = await refusal(f"redis://limited:pw@127.0.0.1:{server.port}/0", durability)
        assert f"it does not support {command}, or its user may not send it" in said


async def test_a_server_that_is_unavailable_is_not_taken_for_one_that_cannot(own_valkey: ValkeyServer) -> None:
    own_valkey.kill()
    async with Producer.connect(own_valkey.url, durability=Durability.FSYNC) as producer:
        with pytest.raises(QueueUnavailable) as unavailable:
            await producer.check_durability()
    assert not isinstance(unavailable.value, CannotConfirm)


def test_the_producer_without_asyncio_confirms_the_same(kind: Kind, tmp_path: Path) -> None:
    with with_disk(kind, tmp_path, "always") as server:
        with SyncProducer(server.url, durability=Durability.FSYNC) as producer:
            producer.check_durability()
            assert producer.try_announce(["a", "a"], coalesce=60) == Accepted(1, 1)
        with SyncProducer(server.url, durability=Durability.REPLICATED) as producer, pytest.raises(CannotConfirm):
            producer.check_durability()
