"""Calls that are made once, on a real server. The caller repeats an attempt whose reply is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from listener import connected_to, listening
from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.idempotent_calls import Begun, Done, IdempotentCalls, Running
from ingest.queue.redis.connection import control_client


class Interrupter:
    """A proxy for Redis that closes the connection instead of replying to a number of the next scripts.

    Redis has run them, and the client cannot detect that.
    """

    def __init__(self, redis_url: str) -> None:
        self._target = urlsplit(redis_url).port or 0
        self._url = redis_url
        self.lost = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL of Redis behind it."""
        async with listening(self._serve) as port:
            yield self._url.replace(f":{self._target}/", f":{port}/")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with connected_to(self._target) as (redis_reader, redis_writer):
            # A client of ours sends a command when it has the reply to the one before.
            while asked := await reader.read(1 << 16):
                redis_writer.write(asked)
                replied = await redis_reader.read(1 << 16)
                if b"EVALSHA" in asked and self.lost and not replied.startswith(b"-NOSCRIPT"):
                    self.lost -= 1
                    return
                writer.write(replied)


@pytest.fixture
def interrupter(redis_url: str) -> Interrupter:
    return Interrupter(redis_url)


@pytest.fixture
async def calls(interrupter: Interrupter, queue_name: str) -> AsyncIterator[IdempotentCalls]:
    async with interrupter.listening() as url, control_client(url) as client:
        yield IdempotentCalls(client, queue_name)


@pytest.fixture
def others(redis: Redis, queue_name: str) -> IdempotentCalls:
    """Those of another process."""
    return IdempotentCalls(redis, queue_name)


async def begun(calls: IdempotentCalls) -> Begun:
    call = await calls.begin("call")
    assert isinstance(call, Begun)
    return call


async def test_a_call_is_begun_once_in_all_processes(calls: IdempotentCalls, others: IdempotentCalls) -> None:
    call = await begun(calls)

    assert isinstance(await calls.begin("call"), Running)
    assert isinstance(await others.begin("call"), Running)
    await calls.end(call, "print", (2, 1))
    assert await calls.begin("call") == await others.begin("call") == Done("print", (2, 1))


async def test_a_call_is_begun_although_the_reply_is_lost(
    calls: IdempotentCalls, others: IdempotentCalls, interrupter: Interrupter
) -> None:
    interrupter.lost = 1
    call = await begun(calls)

    assert interrupter.lost == 0
    assert isinstance(await others.begin("call"), Running)
    await calls.end(call, "print", (1, 0))
    assert await others.begin("call") == Done("print", (1, 0))


async def test_a_call_that_could_not_be_begun_can_be_begun_again_at_once(
    calls: IdempotentCalls, others: IdempotentCalls, interrupter: Interrupter
) -> None:
    interrupter.lost = 2
    with pytest.raises(QueueUnavailable):
        await calls.begin("call")

    assert isinstance(await others.begin("call"), Running)
    call = await begun(calls)
    assert isinstance(await calls.begin("call"), Running)
    await calls.forget(call)
    assert isinstance(await others.begin("call"), Begun)


async def test_a_call_that_could_not_be_forgotten_can_be_begun_again_at_once(
    calls: IdempotentCalls, interrupter: Interrupter, redis: Redis, keys: Keys
) -> None:
    call = await begun(calls)
    # Redis is lost before it gets the command, and comes back as it was.
    key = f"{keys.records}call:call"
    record, lease = await redis.get(key), await redis.pttl(key)
    interrupter.lost = 2
    with pytest.raises(QueueUnavailable):
        await calls.forget(call)
    await redis.set(key, record, px=lease)

    assert isinstance(await calls.begin("call"), Begun)
    assert isinstance(await calls.begin("call"), Running)


async def test_only_its_own_attempt_ends_or_extends_a_call(
    calls: IdempotentCalls, others: IdempotentCalls, redis: Redis
) -> None:
    first = await begun(calls)
    await redis.delete(first.record)  # its lease has expired
    second = await begun(others)
    lease = await redis.pexpire(first.record, 60_000)

    await calls.extend(first)
    await calls.end(first, "first", (1, 0))

    assert lease
    assert await redis.pttl(first.record) > 50_000
    assert isinstance(await calls.begin("call"), Running)
    await others.end(second, "second", (2, 0))
    await calls.forget(first)
    assert await calls.begin("call") == Done("second", (2, 0))


async def test_an_answer_is_kept_although_the_reply_is_lost(
    calls: IdempotentCalls, others: IdempotentCalls, interrupter: Interrupter
) -> None:
    call = await begun(calls)
    interrupter.lost = 1
    await calls.end(call, "print", (1, 0))

    assert await others.begin("call") == Done("print", (1, 0))
