"""Concurrent calls of one producer, with shared and separate parts, without a server."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ingest.domain.errors import QueueUnavailable
from ingest.queue.produce.enqueue_script import Added, NoRoom
from ingest.queue.produce.group_commit import GroupCommit
from ingest.queue.produce.producer_errors import BacklogFull, IdempotencyKeyReused
from ingest.queue.produce.submission import BATCH_BYTES, Submission, submissions
from ingest.queue.redis.connection import QueueRefused

Reply = Added | NoRoom | Exception
ADDED = Added(frozenset())


def single(order_id: str, key: str | None = None) -> Submission:
    [submission] = submissions([order_id], key, 500)
    return submission


class FakeScript:
    """Stands for Redis, records batches, and sends a scripted reply to each when the test allows it."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.batches: list[tuple[int, list[str]]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_asked = asyncio.Event()

    async def add(self, number: int, batch: list[Submission], _: Callable[[], None]) -> Added | NoRoom:
        self.batches.append((number, [str(order) for part in batch for order in part.orders]))
        self.was_asked.set()
        await self.may_answer.wait()
        reply = self.replies.pop(0) if self.replies else ADDED
        if isinstance(reply, Exception):
            raise reply
        return reply

    def hold(self) -> None:
        self.may_answer.clear()
        self.was_asked.clear()


def commit_to(script: FakeScript, *, most: int = 500, on_wait: Callable[[str], None] = lambda _: None) -> GroupCommit:
    return GroupCommit(script.add, most=most, limit=10, on_wait=on_wait)


def tasks(calls: Sequence[Any]) -> list["asyncio.Task[None]"]:
    return [asyncio.create_task(call) for call in calls]


async def test_what_is_submitted_while_a_batch_is_sent_goes_with_the_next() -> None:
    script = FakeScript()
    script.hold()
    commit = commit_to(script)

    first = asyncio.create_task(commit.submit(single("a")))
    await script.was_asked.wait()
    others = tasks([commit.submit(single(name)) for name in "bcd"])
    await asyncio.sleep(0)
    script.may_answer.set()
    await asyncio.gather(first, *others)

    assert script.batches == [(0, ["a"]), (1, ["b", "c", "d"])]


async def test_a_batch_has_no_more_than_its_orders_and_bytes() -> None:
    script = FakeScript()
    commit = commit_to(script, most=2)
    wide = Submission(["wide"], BATCH_BYTES)

    await asyncio.gather(*(commit.submit(single(name)) for name in "abcde"), commit.submit(wide), commit.submit(wide))

    assert [batch for _, batch in script.batches] == [["a", "b"], ["c", "d"], ["e"], ["wide"], ["wide"]]


async def test_a_cancelled_call_takes_no_other_with_it() -> None:
    script = FakeScript()
    script.hold()
    commit = commit_to(script)
    first, second, third, fourth = tasks([commit.submit(single(name)) for name in "abcd"])
    await script.was_asked.wait()
    fifth = asyncio.create_task(commit.submit(single("e")))
    await asyncio.sleep(0)

    first.cancel()
    fifth.cancel()
    await asyncio.wait([first, fifth])
    script.may_answer.set()
    await asyncio.gather(second, third, fourth)

    assert script.batches == [(0, ["a", "b", "c", "d"])]


async def test_what_is_sent_again_keeps_its_number_and_leaves_out_who_has_given_up() -> None:
    script = FakeScript(QueueUnavailable("the reply was lost"))
    script.hold()
    commit = commit_to(script)
    waiting = asyncio.create_task(commit.submit(single("a")))
    not_waiting = asyncio.create_task(commit.try_submit(single("b")))
    cancelled = asyncio.create_task(commit.submit(single("c")))
    await script.was_asked.wait()
    late = asyncio.create_task(commit.submit(single("d")))

    cancelled.cancel()
    await asyncio.wait([cancelled])
    script.may_answer.set()
    await asyncio.gather(waiting, late)

    assert script.batches == [(0, ["a", "b", "c"]), (0, ["a"]), (1, ["d"])]
    with pytest.raises(QueueUnavailable, match="the reply was lost"):
        await not_waiting


async def test_each_call_gets_its_own_error() -> None:
    script = FakeScript(Added(frozenset({1})))
    commit = commit_to(script)

    results = await asyncio.gather(*(commit.submit(single(name, key=name)) for name in "abc"), return_exceptions=True)

    assert [type(result) for result in results] == [int, IdempotencyKeyReused, int]


async def test_a_refusal_reaches_all_callers_of_the_batch_each_with_an_exception_of_its_own() -> None:
    script = FakeScript(QueueRefused("Redis rejects a command: NOPERM"))
    commit = commit_to(script)

    results = await asyncio.gather(*(commit.submit(single(name)) for name in "abc"), return_exceptions=True)

    assert [str(result) for result in results] == ["Redis rejects a command: NOPERM"] * 3
    assert len(set(map(id, results))) == 3
    await commit.submit(single("d"))


async def test_a_bug_reaches_the_callers_rather_than_leaving_them_waiting() -> None:
    script = FakeScript(ZeroDivisionError("a bug"))
    commit = commit_to(script, most=1)
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    results = await asyncio.gather(*(commit.submit(single(name)) for name in "ab"), return_exceptions=True)

    assert [type(result) for result in results] == [ZeroDivisionError] * 2
    await commit.submit(single("c"))


async def test_of_a_batch_that_does_not_fit_the_part_that_does_is_sent() -> None:
    script = FakeScript(NoRoom(2), ADDED, NoRoom(0), ADDED)
    told: list[str] = []
    commit = commit_to(script, on_wait=told.append)

    await asyncio.gather(*(commit.submit(single(name)) for name in "abcd"))

    batches = [batch for _, batch in script.batches]
    assert batches == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c", "d"]]
    assert told == ["the backlog is at its limit of 10 orders; waiting for the workers"]


async def test_who_does_not_wait_is_told_that_there_is_no_room_and_who_does_gets_it_later() -> None:
    script = FakeScript(NoRoom(1, retry_after=60), ADDED, NoRoom(0))
    commit = commit_to(script)

    results = await asyncio.gather(
        commit.try_submit(single("a")),
        commit.try_submit(single("b")),
        commit.submit(single("c")),
        return_exceptions=True,
    )

    assert results[0] == results[2] == 0
    assert isinstance(results[1], BacklogFull)
    assert 45 <= results[1].retry_after <= 75


async def test_what_needs_no_room_is_sent_though_what_is_before_it_has_none() -> None:
    script = FakeScript(NoRoom(1, {1: 0, 3: 0}), Added(frozenset(), {1: 1}))
    commit = commit_to(script)
    large = submissions(["a", "b"], None, 500)[0]
    coalesced = [submissions(name, None, 500, coalesce=1.0)[0] for name in "cd"]

    results = await asyncio.gather(
        *(commit.try_submit(part) for part in (single("first"), coalesced[0], large, coalesced[1])),
        return_exceptions=True,
    )

    assert [batch for _, batch in script.batches][:2] == [["first", "c", "a", "b", "d"], ["first", "c", "d"]]
    assert [results[0], results[1], results[3]] == [0, 1, 0]


async def test_while_others_wait_for_redis_who_does_not_wait_is_answered_at_once() -> None:
    script = FakeScript(QueueUnavailable("the connection was lost"))
    told = asyncio.Event()
    commit = commit_to(script, on_wait=lambda _: told.set())
    random.seed(2)  # for a pause of 96 % of the longest, which does not end before the second call
    waiting = asyncio.create_task(commit.submit(single("a")))
    await told.wait()
    asked = len(script.batches)

    with pytest.raises(QueueUnavailable) as refused:
        await commit.try_submit(single("b"))

    assert len(script.batches) == asked
    assert 0 < refused.value.retry_after <= 2
    await waiting


async def test_a_lost_reply_is_resent_under_its_number_though_the_backlog_is_full_meanwhile() -> None:
    script = FakeScript(QueueUnavailable("the reply was lost"), NoRoom(0), ADDED)
    commit = commit_to(script)

    await commit.submit(single("a"))

    assert script.batches == [(0, ["a"])] * 3


async def test_what_may_wait_to_be_sent_is_bounded() -> None:
    script = FakeScript()
    script.hold()
    commit = commit_to(script)
    large = Submission(["large"], BATCH_BYTES)
    calls = tasks([commit.submit(large) for _ in range(40)])
    await script.was_asked.wait()

    with pytest.raises(QueueUnavailable, match="too many orders"):
        await commit.try_submit(large)

    assert len(list(commit._pending)) <= 32
    script.may_answer.set()
    await asyncio.gather(*calls)
    assert len(script.batches) == 40


async def test_closed_it_leaves_nobody_waiting() -> None:
    script = FakeScript()
    script.hold()
    commit = commit_to(script)
    calls = tasks([commit.submit(single(name)) for name in "ab"])
    await script.was_asked.wait()
    calls += tasks([commit.submit(single("c"))])
    await asyncio.sleep(0)

    await commit.close()

    for call in calls:
        with pytest.raises(QueueUnavailable, match="closed"):
            await call
    with pytest.raises(QueueUnavailable, match="closed"):
        await commit.submit(single("d"))


async def test_closed_it_leaves_nobody_waiting_for_room() -> None:
    script = FakeScript()
    script.hold()
    commit = commit_to(script)
    sent = asyncio.create_task(commit.submit(single("a")))
    await script.was_asked.wait()
    others = tasks([commit.submit(Submission(["huge"], 32 * BATCH_BYTES)), commit.submit(single("b"))])
    await asyncio.sleep(0)

    await commit.close()

    async with asyncio.timeout(5):
        results = await asyncio.gather(sent, *others, return_exceptions=True)
    assert [str(result) for result in results] == ["the producer is closed"] * 3


async def test_closed_before_anything_is_sent_it_leaves_nobody_waiting() -> None:
    commit = commit_to(FakeScript())
    call = asyncio.create_task(commit.submit(single("a")))
    await asyncio.sleep(0)

    await commit.close()

    with pytest.raises(QueueUnavailable, match="closed"):
        await call
