"""One connection that runs one command after another. No reply is taken for another's, whatever ends a command early."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Redis
from support import eventually

from ingest.domain.errors import QueueUnavailable
from ingest.lab.servers import ValkeyServer
from ingest.queue.redis.connection import translated
from ingest.queue.redis.direct_connection import DirectConnection
from ingest.queue.redis.routed_connection import QueueConnection, open_direct
from ingest.queue.redis.script_call import ScriptCall

TIMEOUT = 30.0


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[QueueConnection]:
    async with open_direct(redis_url, TIMEOUT) as line:
        yield line


async def test_a_command_is_answered_as_redis_answers_it(line: QueueConnection, queue_name: str) -> None:
    assert await line.call("SET", queue_name, b"\xff\x00") == b"OK"
    assert await line.call("GETRANGE", queue_name, 0, -1) == b"\xff\x00"


async def test_commands_at_the_same_time_get_their_own_replies(line: QueueConnection) -> None:
    said = [f"word {number}" for number in range(200)]

    assert await asyncio.gather(*(line.call("ECHO", word) for word in said)) == [word.encode() for word in said]


async def test_after_a_cancelled_command_the_next_gets_its_own_reply(
    line: QueueConnection, redis: Redis, queue_name: str
) -> None:
    waiting = asyncio.create_task(line.call("BLPOP", queue_name, 0))
    await eventually(lambda: has_blocked_clients(redis))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await redis.rpush(queue_name, "late")

    assert await line.call("ECHO", "mine") == b"mine"
    assert await redis.lrange(queue_name, 0, -1) == [b"late"], "nobody waits for it any more"


async def has_blocked_clients(redis: Redis) -> bool:
    return (await redis.info("clients"))["blocked_clients"] > 0


async def test_a_script_is_sent_only_when_redis_does_not_know_it(line: QueueConnection, redis: Redis) -> None:
    script = redis.register_script("return ARGV[1]")
    await redis.script_flush()

    assert await line.run_all([ScriptCall(script, [], ["first"])]) == [b"first"]
    assert await line.call("SCRIPT", "EXISTS", script.sha) == [1]
    assert await line.run_all([ScriptCall(script, [], ["second"])]) == [b"second"]


async def test_a_server_that_was_restarted_is_an_outage_for_one_command(own_valkey: ValkeyServer) -> None:
    async with open_direct(own_valkey.url, TIMEOUT) as line:
        await line.call("PING")
        own_valkey.kill()
        own_valkey.start()

        with pytest.raises(QueueUnavailable), translated():
            await line.call("PING")
        assert await line.call("ECHO", "back") == b"back"


async def test_a_connection_that_the_server_closes_while_it_is_idle_is_opened_again(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    losses: list[str] = []

    async def lose() -> None:
        losses.append("lost")

    async with open_direct(own_valkey.url, TIMEOUT, lose) as line:
        assert isinstance(line, DirectConnection)
        number = await line.call("CLIENT", "ID")
        await own_redis.client_kill_filter(_id=number)
        await eventually(line._connection.can_read)

        assert await line.call("ECHO", "again") == b"again"
        assert len(await own_redis.client_list()) == 2
    assert losses == []


async def test_a_server_that_hangs_is_an_outage(own_valkey: ValkeyServer) -> None:
    async with open_direct(own_valkey.url, 0.5) as line:
        await line.call("PING")
        os.kill(own_valkey.pid, signal.SIGSTOP)
        try:
            with pytest.raises(QueueUnavailable), translated():
                await line.call("PING")
        finally:
            os.kill(own_valkey.pid, signal.SIGCONT)

        await eventually(lambda: is_answered(line))


async def test_a_server_that_hangs_when_it_is_connected_to_does_not_answer_in_time(own_valkey: ValkeyServer) -> None:
    os.kill(own_valkey.pid, signal.SIGSTOP)
    try:
        async with open_direct(own_valkey.url, 0.5) as line:
            with pytest.raises(QueueUnavailable, match=r"^no reply within 0\.5 s$"), translated():
                await line.call("PING")
    finally:
        os.kill(own_valkey.pid, signal.SIGCONT)


async def test_each_command_has_its_own_time_however_long_the_connection_is_open(
    own_valkey: ValkeyServer, queue_name: str
) -> None:
    async with open_direct(own_valkey.url, 2.0) as line:
        await line.call("PING")
        for _ in range(3):
            assert await line.call("BLPOP", queue_name, 1) is None

        with pytest.raises(TimeoutError, match="no reply within 2 s"):
            await line.call("BLPOP", queue_name, 60)
        assert await line.call("ECHO", "mine") == b"mine"


async def test_a_server_that_hangs_while_it_is_sent_more_than_it_takes_is_an_outage(
    own_valkey: ValkeyServer, queue_name: str
) -> None:
    async with open_direct(own_valkey.url, 0.5) as line:
        await line.call("PING")
        os.kill(own_valkey.pid, signal.SIGSTOP)
        try:
            with pytest.raises(QueueUnavailable), translated():
                await line.call("SET", queue_name, b"x" * 30_000_000)
        finally:
            os.kill(own_valkey.pid, signal.SIGCONT)

        await eventually(lambda: is_answered(line))


async def test_why_a_command_fails_is_not_taken_for_why_the_last_one_did(
    own_valkey: ValkeyServer, queue_name: str
) -> None:
    async with open_direct(own_valkey.url, 0.5) as line:
        await line.call("PING")
        with pytest.raises(TimeoutError, match="no reply"):
            await line.call("BLPOP", queue_name, 60)
        own_valkey.kill()

        with pytest.raises(redis_errors.ConnectionError, match="connecting"):
            await line.call("PING")


async def is_answered(line: QueueConnection) -> bool:
    try:
        with translated():
            return await line.call("ECHO", "mine") == b"mine"
    except QueueUnavailable:
        return False
