"""`ingest doctor` reports each error of a real Redis."""

import asyncio
import re
import shutil
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import foreign
import msgspec
import pytest
from accounts import PASSWORD, QUEUE, create_user
from listener import Serve, listening
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from servers.kinds import KINDS, Kind
from set_ups import SetUp, database
from support import eventually

import ingest.queue
from ingest.lab.servers import EmbeddedServers
from ingest.operations.doctor.finding import Area, Finding, Level
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.inspection.server import PROBED, inspect
from ingest.queue.partitions.layout_record import layout_key


@pytest.fixture(scope="module")
def dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    with database(own_servers) as dsn:
        yield dsn


@pytest.fixture
def redis_url(own_servers: EmbeddedServers) -> str:
    return own_servers.redis_url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def set_up(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[SetUp]:
    async with SetUp.sound(redis_url, dsn, queue_name) as set_up:
        yield set_up


@asynccontextmanager
async def configured(redis: Redis, **options: str) -> AsyncIterator[None]:
    """The server with other settings, until the end of the block."""
    names = {name.replace("_", "-"): value for name, value in options.items()}
    before = {name: (await redis.config_get(name))[name] for name in names}
    for name, value in names.items():
        await redis.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            await redis.config_set(name, value)


@asynccontextmanager
async def user(redis: Redis, url: str, *rules: str) -> AsyncIterator[str]:
    """The URL of a user with these rules."""
    await redis.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">s3cr3t", *rules)  # type: ignore[no-untyped-call]
    try:
        yield f"redis://limited:s3cr3t@{url.rpartition('@')[2]}"
    finally:
        await redis.acl_deluser("limited")


@pytest.mark.each_server
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_worker_user_on_each_kind_of_server_is_sound_refused_nothing_and_leaves_nothing(
    kind: Kind, set_up: SetUp, tmp_path: Path
) -> None:
    with kind.server(tmp_path / "server", appendonly="yes") as server:
        limited = create_user(server.url, kind, "ingest").replace("@", f":{quote(PASSWORD, safe='')}@")
        async with Redis.from_url(server.url) as redis:
            found = await set_up.examined(redis_url=limited, stream=QUEUE)

            assert [each for each in found if each.area is Area.REDIS and each.level is not Level.OK] == []
            assert await redis.acl_log() == []
            assert await redis.dbsize() == 0
            # The script that reads the state of a queue.
            assert (await redis.info("memory"))["number_of_cached_scripts"] == 1


async def test_a_server_that_is_down_or_hangs_hides_nothing_about_the_others(set_up: SetUp) -> None:
    async def say_nothing(reader: StreamReader, _: StreamWriter) -> None:
        await reader.read()

    (down,) = await set_up.faults(Area.REDIS, redis_url="redis://127.0.0.1:1/0")
    set_up.within = 1.0
    async with listening(say_nothing) as port:
        silent = await set_up.examined(
            redis_url=f"redis://127.0.0.1:{port}/0",
            postgres_dsn=f"postgresql://x@127.0.0.1:{port}/x",
            upstream_url=f"https://127.0.0.1:{port}/{{order_id}}",
        )

    faults = [each for each in silent if each.level is Level.ERROR]
    assert [each.area for each in faults] == [Area.REDIS, Area.POSTGRES, Area.UPSTREAM]
    assert all("within 1 s" in each.what for each in faults), faults
    assert "unavailable" in down


@pytest.mark.parametrize("answer", [foreign.http, foreign.echo, foreign.ones, foreign.words, foreign.greeting])
async def test_what_is_no_redis_is_a_fault(set_up: SetUp, answer: Serve) -> None:
    async with listening(answer) as port:
        faults = await set_up.faults(Area.REDIS, redis_url=f"redis://127.0.0.1:{port}/0")

    assert len(faults) == 1


async def test_a_wrong_password_is_a_fault_without_the_password(set_up: SetUp, redis_url: str) -> None:
    host = redis_url.rpartition("@")[2]

    (fault,) = await set_up.faults(Area.REDIS, redis_url=f"redis://:wr0ng@{host}")

    assert "denies access" in fault
    assert "wr0ng" not in fault


async def test_a_policy_that_evicts_the_queue_is_a_fault_and_one_that_evicts_records_a_warning(
    set_up: SetUp, redis: Redis
) -> None:
    async with configured(redis, maxmemory_policy="allkeys-lru"):
        (fault,) = await set_up.faults(Area.REDIS)
    async with configured(redis, maxmemory_policy="volatile-lru"):
        (warning,) = await set_up.warnings(Area.REDIS)

    assert "maxmemory-policy is allkeys-lru" in fault
    assert "maxmemory-policy is volatile-lru" in warning


async def test_a_server_without_persistence_is_a_warning_and_where_fsync_was_asked_for_a_fault(
    set_up: SetUp, redis: Redis
) -> None:
    async with configured(redis, appendonly="no"):
        (warning,) = await set_up.warnings(Area.REDIS)
        (fault,) = await set_up.faults(Area.REDIS, durability="fsync")

    assert "appendonly is off" in warning
    assert "INGEST_DURABILITY=fsync" in fault


async def test_missing_replicas_are_a_fault_where_they_were_asked_for(set_up: SetUp) -> None:
    (fault,) = await set_up.faults(Area.REDIS, durability="replicated")

    assert "0 replicas are connected, and INGEST_DURABILITY=replicated waits for 1" in fault


async def test_a_replica_is_a_fault(set_up: SetUp, redis: Redis) -> None:
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
    try:
        found = await set_up.examined()
    finally:
        await redis.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]

    (fault,) = faults_of(found)
    assert "You can't write against a read only replica" in fault.what
    assert "the primary" in fault.advice


async def test_a_full_server_is_a_fault(set_up: SetUp, redis: Redis) -> None:
    async with configured(redis, maxmemory="1000000"):
        found = await set_up.examined()

    (fault,) = faults_of(found)
    assert "does not accept writes" in fault.what
    assert "maxmemory" in fault.advice
    assert any("1 MB (maxmemory) are used" in each.what for each in found if each.level is Level.WARNING)


async def test_replicas_that_writes_have_to_wait_for_and_are_not_there_are_a_fault(set_up: SetUp, redis: Redis) -> None:
    async with configured(redis, min_replicas_to_write="1"):
        (fault,) = faults_of(await set_up.examined())

    assert "NOREPLICAS" in fault.what or "replicas" in fault.what
    assert "min-replicas-to-write" in fault.advice


async def test_a_server_that_cannot_save_is_a_fault(set_up: SetUp, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with KINDS[0].server(folder, save="3600 1", stop_writes_on_bgsave_error="yes") as server:
        async with Redis.from_url(server.url) as redis:

            async def has_failed() -> bool:
                return bool((await redis.info("persistence"))["rdb_last_bgsave_status"] == "err")

            shutil.rmtree(folder)
            folder.mkdir()  # another one: the server's own is gone
            await redis.bgsave()
            await eventually(has_failed)
            found = await set_up.examined(redis_url=server.url)
            await redis.config_set("save", "")  # or it would not end

    (fault,) = faults_of(found)
    assert "does not accept writes: MISCONF" in fault.what
    assert "free space on its disk" in fault.advice
    assert any(each.what == "its last snapshot has failed" for each in found)


async def test_a_server_of_a_cluster_is_a_fault(set_up: SetUp, tmp_path: Path) -> None:
    with KINDS[0].server(tmp_path / "server", appendonly="yes", cluster_enabled="yes") as server:
        (fault,) = faults_of(await set_up.examined(redis_url=server.url))

    assert "CLUSTERDOWN" in fault.what
    assert fault.advice == "write redis+cluster://host:6379 in INGEST_REDIS_URL"


async def test_too_few_connections_are_a_fault(set_up: SetUp, redis: Redis) -> None:
    async with configured(redis, maxclients="1000"):
        (fault, *_) = faults_of(await set_up.examined(processes=256))

    assert "of 1,000 connections are in use, and a worker needs up to 1,536" in fault.what


async def test_a_server_that_takes_no_more_clients_is_not_to_be_started(set_up: SetUp, redis: Redis) -> None:
    async with configured(redis, maxclients="1"):
        (fault,) = faults_of(await set_up.examined())

    assert fault.what == "unavailable: max number of clients reached"
    assert fault.advice.startswith("raise maxclients")


async def test_a_server_that_a_script_keeps_busy_is_not_to_be_started(set_up: SetUp, redis: Redis) -> None:
    async def is_busy() -> bool:
        try:
            return not await redis.ping()
        except ResponseError as error:
            return str(error).startswith("BUSY")

    async with configured(redis, busy_reply_threshold="10"):
        running = asyncio.create_task(redis.eval("while true do end", 0))
        try:
            await eventually(is_busy)
            (fault,) = faults_of(await set_up.examined())
        finally:
            await redis.execute_command("SCRIPT", "KILL")  # type: ignore[no-untyped-call]
            with pytest.raises(ResponseError):
                await running

    assert "unavailable: BUSY" in fault.what
    assert "SCRIPT KILL" in fault.advice


async def test_commands_that_the_user_may_not_send_are_named(set_up: SetUp, redis: Redis, redis_url: str) -> None:
    refused = ("-xautoclaim", "-zadd", "-evalsha", "-xgroup|create", "-time")
    async with user(redis, redis_url, "+@all", "~*", *refused) as limited:
        (fault,) = await set_up.faults(Area.REDIS, redis_url=limited)

    assert fault == "the user may not send TIME, EVALSHA, XAUTOCLAIM, XGROUP CREATE, ZADD"


async def test_keys_that_the_user_may_not_use_are_named(
    set_up: SetUp, redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with user(redis, redis_url, "+@all", "~ingest:{other}:*", "~ingest:{quota:*}:*") as limited:
        faults = await set_up.faults(Area.REDIS, redis_url=limited)
    async with user(redis, redis_url, "+@all", "%R~*") as limited:
        (read_only,) = await set_up.faults(Area.REDIS, redis_url=limited)
    async with user(redis, redis_url, "+@all", f"~ingest:{{{queue_name}}}:*") as limited:
        (warning,) = await set_up.warnings(Area.REDIS, redis_url=limited)
        (quota,) = await set_up.faults(Area.REDIS, redis_url=limited, upstream_rate=10)

    assert f"the user may not read and write {Keys.of(queue_name).stream}" in faults[0]
    assert read_only.startswith("the user may not read and write ")
    assert "cannot share a pause" in warning
    assert "of the quota" in quota


async def test_without_info_the_rest_is_checked(set_up: SetUp, redis: Redis, redis_url: str) -> None:
    async with user(redis, redis_url, "+@all", "-info", "~*") as limited:
        (warning,) = await set_up.warnings(Area.REDIS, redis_url=limited)

    assert "INFO is not permitted" in warning


async def test_any_key_that_the_user_may_not_use_is_named(
    set_up: SetUp, redis: Redis, redis_url: str, queue_name: str
) -> None:
    keys = Keys.of(queue_name)
    used = {
        f"{key}*" if key.endswith(":") else key for key in msgspec.structs.astuple(keys) if key != keys.retry_announced
    } | {layout_key(queue_name)}

    async with user(redis, redis_url, "+@all", "~ingest:{quota:*}:*", *(f"~{key}" for key in used)) as limited:
        (fault,) = await set_up.faults(Area.REDIS, redis_url=limited)

    assert fault == f"the user may not read and write {keys.retry_announced}"


async def test_each_key_that_holds_something_else_is_a_fault(set_up: SetUp, redis: Redis, queue_name: str) -> None:
    keys = Keys.of(queue_name)
    # The others are prefixes and a command that does not exist.
    own = [key for key in msgspec.structs.astuple(keys) if not key.endswith(":") and key != keys.probe]
    for key in own:
        await (redis.rpush if key == keys.pushed else redis.set)(key, "something")

    faults = await set_up.faults(Area.REDIS)

    assert sorted(faults) == sorted(f"the key {key} is of another type" for key in own)


def test_each_command_that_a_script_sends_is_tried() -> None:
    texts = [file.read_text(encoding="utf-8") for file in Path(ingest.queue.__file__).parent.glob("lua/*.lua")]
    called = {match for text in texts for match in re.findall(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?", text)}
    sent = {f"{name} {second}" if name in {"XGROUP", "XINFO"} else name for name, second in called}

    # XNACK has a substitute, and TIME is called for the clock.
    # Without INFO, scripts use a fallback, which another check reports. RENAME is for a repair only, which reports it.
    assert sent - {"TIME", "XNACK", "INFO", "RENAME"} <= set(PROBED)


async def test_the_order_announced_last_is_found(redis: Redis, redis_url: str, queue_name: str) -> None:
    stream = Keys.of(queue_name).stream
    for order_id in ("first", "last"):
        await redis.xadd(stream, {"order_id": order_id})

    known = (await inspect(redis_url, {queue_name: "api"}, "ingest")).newest[queue_name]
    await redis.xadd(stream, {"order_id": " no ID"})
    unknown = (await inspect(redis_url, {queue_name: "api"}, "ingest")).newest[queue_name]
    await redis.delete(stream)

    assert (known, unknown) == ("last", None)


def faults_of(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level is Level.ERROR]
