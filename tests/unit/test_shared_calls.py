"""Concurrent calls share one: no answer is older than its question, and one caller's end is not another's."""

import asyncio
from collections.abc import Sequence

import pytest

from ingest.operations.shared_calls import SharedCalls


class Server:
    """Responds when the test allows it, and records requests."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.is_asked = asyncio.Condition()
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, keys: Sequence[str]) -> dict[str, str]:
        self.asked.append(list(keys))
        number = len(self.asked)
        async with self.is_asked:
            self.is_asked.notify_all()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return {key: f"{key} in call {number}" for key in keys}


async def until_asked(server: Server, times: int) -> None:
    async with asyncio.timeout(5), server.is_asked:
        await server.is_asked.wait_for(lambda: len(server.asked) >= times)


async def test_what_is_asked_during_a_call_is_asked_together_by_the_next() -> None:
    server = Server()
    calls = SharedCalls(server, most=10)
    first = asyncio.ensure_future(calls("a"))
    await until_asked(server, 1)
    later = [asyncio.ensure_future(calls(key)) for key in ("a", "b", "a")]
    await asyncio.sleep(0)
    server.may_answer.set()

    assert await first == "a in call 1"
    assert await asyncio.gather(*later) == ["a in call 2", "b in call 2", "a in call 2"]
    assert server.asked == [["a"], ["a", "b"]]


async def test_a_call_has_no_more_keys_than_it_may() -> None:
    server = Server()
    calls = SharedCalls(server, most=2)
    tasks = [asyncio.ensure_future(calls(str(number))) for number in range(7)]
    server.may_answer.set()

    await asyncio.gather(*tasks)

    assert max(map(len, server.asked)) == 2
    assert sorted(key for keys in server.asked for key in keys) == list("0123456")


async def test_an_error_reaches_all_callers_and_the_next_call_is_made() -> None:
    server = Server()
    calls = SharedCalls(server, most=10)
    server.may_answer.set()
    server.error = RuntimeError("no")

    failed = await asyncio.gather(calls("a"), calls("b"), return_exceptions=True)
    server.error = None

    assert [str(error) for error in failed] == ["no", "no"]
    assert await calls("c") == f"c in call {len(server.asked)}"


async def test_a_caller_that_gives_up_takes_nothing_from_the_others() -> None:
    server = Server()
    calls = SharedCalls(server, most=10)
    gives_up, stays = asyncio.ensure_future(calls("a")), asyncio.ensure_future(calls("a"))
    await until_asked(server, 1)
    gives_up.cancel()
    await asyncio.wait([gives_up])
    server.may_answer.set()

    assert gives_up.cancelled()
    assert (await stays).startswith("a in call")


async def test_one_call_after_another_is_answered() -> None:
    server = Server()
    server.may_answer.set()
    calls = SharedCalls(server, most=10)

    for number in range(100):
        assert await calls("a") == f"a in call {number + 1}"


async def test_closed_it_makes_no_more_calls_and_cancels_those_who_wait() -> None:
    server = Server()
    calls = SharedCalls(server, most=1)
    waiting = [asyncio.ensure_future(calls(key)) for key in ("a", "b")]
    await until_asked(server, 1)

    await calls.close()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.gather(*waiting)
    assert server.asked == [["a"]]


async def test_a_call_that_has_to_be_followed_by_a_pause_lets_the_next_ones_wait_together() -> None:
    server = Server()
    server.may_answer.set()
    pauses = [0.05, 0.0]
    calls = SharedCalls(server, most=10, rest=lambda: pauses.pop(0))

    assert await calls("a") == "a in call 1"
    later = [calls(key) for key in ("a", "b")]
    await asyncio.sleep(0)

    assert server.asked == [["a"]]
    assert await asyncio.gather(*later) == ["a in call 2", "b in call 2"]
