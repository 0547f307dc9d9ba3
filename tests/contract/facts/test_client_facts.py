"""What redis-py does by itself, and why the queue's clients are set up otherwise."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from contract.facts.deaf_connection import DeafConnection
from contract.facts.pair import replicated
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MaxConnectionsError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from servers.kinds import Kind
from support import eventually

GROUP = "g"
SHORT = 0.3  # a socket timeout


def by_default(url: str, **others: Any) -> Redis:
    """A client made without a URL."""
    parts = urlsplit(url)
    return Redis(host=parts.hostname or "", port=parts.port or 0, password=parts.password, **others)


async def is_blocked(redis: Redis) -> bool:
    return any("b" in client["flags"] for client in await redis.client_list())


async def pending_of(redis: Redis, stream: str) -> int:
    return int((await redis.xpending(stream, GROUP))["pending"])


# -- what is set up by default ------------------------------------------------------------------------------------


async def test_by_default_a_client_waits_five_seconds_for_an_answer_and_speaks_resp3(redis_url: str) -> None:
    async with by_default(redis_url) as client:
        connection = await client.connection_pool.get_connection()

        assert (connection.socket_timeout, connection.socket_connect_timeout) == (5, 5)
        await client.connection_pool.release(connection)
        assert (await client.client_info())["resp"] == "3"


async def test_a_client_retries_ten_times_by_default_but_one_made_from_a_url_never(redis_url: str) -> None:
    retries = []

    for client in (by_default(redis_url), Redis.from_url(redis_url)):
        async with client:
            connection = await client.connection_pool.get_connection()
            retries.append(connection.retry.get_retries())
            await client.connection_pool.release(connection)

    assert retries == [10, 0]


async def test_the_default_pool_raises_when_its_hundred_connections_are_taken(redis_url: str) -> None:
    async with by_default(redis_url) as client:
        taken = [await client.connection_pool.get_connection() for _ in range(100)]

        with pytest.raises(MaxConnectionsError):
            await client.ping()

        for connection in taken:
            await client.connection_pool.release(connection)


# -- blocking reads -----------------------------------------------------------------------------------------------


async def test_a_read_that_blocks_for_longer_than_the_socket_timeout_fails(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    await redis.xgroup_create(queue_name, GROUP, mkstream=True)

    async with Redis.from_url(redis_url, socket_timeout=SHORT) as client:
        with pytest.raises(RedisTimeoutError):
            await client.xreadgroup(GROUP, "c", {queue_name: ">"}, block=60_000)


async def test_a_blocked_read_keeps_its_connection_from_everybody_else(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    await redis.xgroup_create(queue_name, GROUP, mkstream=True)
    pool = BlockingConnectionPool.from_url(redis_url, max_connections=1, timeout=SHORT, socket_timeout=60)

    async with Redis.from_pool(pool) as client:
        reading = asyncio.create_task(client.xreadgroup(GROUP, "c", {queue_name: ">"}, block=60_000))
        await eventually(lambda: is_blocked(redis))

        with pytest.raises(RedisConnectionError, match="No connection available"):
            await client.ping()

        await redis.xadd(queue_name, {"a": 1})
        await reading


async def test_a_cancelled_read_drops_its_connection(redis: Redis, redis_url: str, queue_name: str) -> None:
    async def names() -> set[str]:
        return {client["name"] for client in await redis.client_list()}

    await redis.xgroup_create(queue_name, GROUP, mkstream=True)

    async with Redis.from_url(redis_url, client_name=queue_name) as client:
        reading = asyncio.create_task(client.xreadgroup(GROUP, "c", {queue_name: ">"}, block=60_000))
        await eventually(lambda: is_blocked(redis))
        assert queue_name in await names()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        async def is_gone() -> bool:
            return queue_name not in await names()

        await eventually(is_gone)


async def test_what_was_delivered_to_a_read_that_is_cancelled_stays_pending_and_is_not_read_again(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    await redis.xgroup_create(queue_name, GROUP, mkstream=True)
    await redis.xadd(queue_name, {"a": 1})

    async with DeafConnection(redis_url, deaf_after=b"XREADGROUP").open() as url, Redis.from_url(url) as client:
        reading = asyncio.create_task(client.xreadgroup(GROUP, "c", {queue_name: ">"}))
        await eventually(lambda: pending_of(redis, queue_name))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        assert not await client.xreadgroup(GROUP, "c", {queue_name: ">"})
        [[_, own]] = await client.xreadgroup(GROUP, "c", {queue_name: "0"})
        assert len(own) == 1


async def test_a_read_that_is_retried_can_return_nothing_though_an_entry_was_delivered(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    await redis.xgroup_create(queue_name, GROUP, mkstream=True)
    await redis.xadd(queue_name, {"a": 1})

    async with (
        DeafConnection(redis_url, deaf_after=b"XREADGROUP").open() as url,
        by_default(url, socket_timeout=SHORT) as client,
    ):
        entries = await client.xreadgroup(GROUP, "c", {queue_name: ">"})

    assert not entries
    assert await pending_of(redis, queue_name) == 1


# -- writing ------------------------------------------------------------------------------------------------------


async def test_an_xadd_whose_answer_is_late_is_sent_again_and_written_twice(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with (
        DeafConnection(redis_url, deaf_after=b"XADD").open() as url,
        by_default(url, socket_timeout=SHORT) as client,
    ):
        await client.xadd(queue_name, {"a": 1})

    assert await redis.xlen(queue_name) == 2


# -- failover -----------------------------------------------------------------------------------------------------


async def test_a_failover_ends_a_blocked_read_by_unblocked_and_the_next_by_read_only_and_neither_is_retried(
    kind: Kind,
) -> None:
    async with replicated(kind) as pair:
        await pair.on_primary.config_set("masterauth", pair.replica.password)
        await pair.on_primary.xgroup_create("s", GROUP, mkstream=True)
        line = DeafConnection(pair.primary.url)
        async with line.open() as url, by_default(url, socket_timeout=60) as client:
            reading = asyncio.create_task(client.xreadgroup(GROUP, "c", {"s": ">"}, block=60_000))
            await eventually(lambda: is_blocked(pair.on_primary))

            await pair.on_primary.execute_command("FAILOVER")

            with pytest.raises(ResponseError, match=r"^UNBLOCKED "):
                await reading
            with pytest.raises(ReadOnlyError):
                await client.xreadgroup(GROUP, "c", {"s": ">"}, block=60_000)
            assert line.connections == 2  # the server ended the first; a retry would have made another
