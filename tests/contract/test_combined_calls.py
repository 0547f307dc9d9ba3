"""Calls of the same script by several sources share a command, and an error of one of them stays with its caller."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from consumers import Consumer
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.redis.combined_calls import ClientRunner, CombinedCalls
from ingest.queue.redis.connection import QueueRefused
from ingest.queue.redis.script_call import ScriptCall
from ingest.queue.redis.topology.standalone import StandaloneTopology

pytestmark = pytest.mark.each_server

GROUP = "ingest"
# All keys belong to the same owner.
ONE_SERVER = StandaloneTopology("redis://127.0.0.1:1/0")


class Sent(ClientRunner):
    """Sends scripts, and counts the commands."""

    commands = 0

    async def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
        self.commands += len(calls)
        return await super().run_all(calls)


@pytest.fixture
def sent(redis: Redis) -> Sent:
    return Sent(redis)


@pytest.fixture
async def calls(redis: Redis, sent: Sent) -> AsyncIterator[CombinedCalls]:
    calls = CombinedCalls(redis, sent, ONE_SERVER)
    yield calls
    await calls.close()


async def paused(calls: CombinedCalls, key: str, milliseconds: int) -> int:
    return int(await calls.call("quota_pause", [key], [milliseconds]))


async def test_calls_at_the_same_time_are_one_command_and_get_their_own_replies(
    calls: CombinedCalls, sent: Sent, queue_name: str
) -> None:
    wanted = [number * 100_000 for number in range(50)]

    found = await asyncio.gather(*(paused(calls, f"{queue_name}:{each}", each) for each in wanted))

    assert found == wanted
    assert sent.commands <= 3, "a slow server may leave a rest for a second command"


async def test_a_part_that_fails_raises_its_error_in_its_own_caller_only(
    calls: CombinedCalls, redis: Redis, sent: Sent, queue_name: str
) -> None:
    keys = [f"{queue_name}:{number}" for number in range(5)]
    await redis.set(keys[2], "no hash")

    found = await asyncio.gather(*(paused(calls, key, 60_000) for key in keys), return_exceptions=True)

    assert sent.commands == 1
    assert [each for number, each in enumerate(found) if number != 2] == [60_000] * 4
    assert isinstance(found[2], redis_errors.ResponseError)
    assert str(found[2]).startswith("WRONGTYPE")


async def test_a_group_that_is_missing_is_reported_to_its_own_caller(
    calls: CombinedCalls, one: Consumer, queue_name: str
) -> None:
    async def owned(queue: str) -> Any:
        keys = [f"{queue}:{kind}" for kind in ("alive", "dead", "stream", "settled", "express", "express-settled")]
        return await calls.call("chores", keys, [GROUP, "one"])

    there = one.access.keys
    keys = [there.alive, there.dead, there.stream, there.settled, there.express, there.express_settled]
    lost, found = await asyncio.gather(
        owned(f"{queue_name}-other"), calls.call("chores", keys, [GROUP, "one"]), return_exceptions=True
    )

    assert found == [0, 0, 0]
    assert isinstance(lost, redis_errors.ResponseError)
    assert "NOGROUP" in str(lost)


async def test_a_key_that_one_source_may_not_use_does_not_stop_the_others(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    pattern = f"~ingest:{{{queue_name}/good*"
    await redis.execute_command(
        "ACL", "SETUSER", "few", "reset", "on", ">few", "+@all", pattern, "~*:probe"
    )  # fmt: skip
    try:
        url = f"redis://few:few@{redis_url.rpartition('@')[2]}"
        async with AsyncExitStack() as stack:
            connections = await stack.enter_async_context(QueueConnections.open(url))
            bad, *good = [
                await stack.enter_async_context(
                    Consumer.sharing(connections, f"{queue_name}/{name}", GROUP, "one", 1.0)
                )
                for name in ("bad", "good-1", "good-2")
            ]

            found = await asyncio.gather(*(each.heartbeat(6.0) for each in (bad, *good)), return_exceptions=True)

        assert isinstance(found[0], QueueRefused)
        assert [each.is_first for each in found[1:]] == [True, True]
    finally:
        await redis.execute_command("ACL", "DELUSER", "few")


async def test_calls_that_come_while_one_is_on_its_way_form_the_next_command(redis: Redis, queue_name: str) -> None:
    is_sent, may_go_on = asyncio.Event(), asyncio.Event()

    class Held(Sent):
        async def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
            is_sent.set()
            await may_go_on.wait()
            return await super().run_all(calls)

    sent = Held(redis)
    calls = CombinedCalls(redis, sent, ONE_SERVER)
    first = asyncio.create_task(paused(calls, f"{queue_name}:0", 60_000))
    await is_sent.wait()
    later = [asyncio.create_task(paused(calls, f"{queue_name}:{number}", 60_000)) for number in range(1, 9)]
    await asyncio.sleep(0)
    may_go_on.set()

    assert await asyncio.gather(first, *later) == [60_000] * 9
    assert sent.commands == 2


async def test_many_arguments_are_sent_in_several_commands(calls: CombinedCalls, sent: Sent, queue_name: str) -> None:
    async def padded(number: int) -> int:
        # The script ignores the others, so that both parts of a command begin within its millisecond.
        arguments = [60_000, *range(number)]
        return int(await calls.call("quota_pause", [f"{queue_name}:{number}"], arguments))

    assert await asyncio.gather(*map(padded, [1_500, 1_501, 10])) == [60_000] * 3
    assert sent.commands == 2


async def test_an_outage_is_reported_to_every_caller(redis: Redis, queue_name: str) -> None:
    class Unavailable(Sent):
        async def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
            raise redis_errors.ConnectionError(f"lost {len(calls)}")

    calls = CombinedCalls(redis, Unavailable(redis), ONE_SERVER)

    found = await asyncio.gather(*(paused(calls, queue_name, 0) for _ in range(3)), return_exceptions=True)

    assert [type(each) for each in found] == [QueueUnavailable] * 3


async def test_a_caller_that_gives_up_does_not_disturb_the_others(calls: CombinedCalls, queue_name: str) -> None:
    given_up = asyncio.create_task(paused(calls, f"{queue_name}:1", 60_000))
    other = asyncio.create_task(paused(calls, f"{queue_name}:2", 60_000))
    await asyncio.sleep(0)

    given_up.cancel()

    assert await other == 60_000
    assert given_up.cancelled()
