"""Batches that wait for a disk or a replica at the same time, without a server."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ingest.domain.errors import QueueUnavailable
from ingest.queue.produce.enqueue_script import Added, NoRoom
from ingest.queue.produce.group_commit import Add
from ingest.queue.produce.overlapping_commit import OverlappingCommit
from ingest.queue.produce.submission import Submission, submissions
from ingest.queue.redis.connection import QueueRefused


class FakeDisk:
    """Stands for Redis and its disk. A batch is in the stream immediately, and confirmed when the test allows it."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, list[str]]] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.is_asked = asyncio.Event()
        self.replies: list[NoRoom | Exception] = []

    def slots(self, number: int) -> list[Add]:
        return [self._slot(slot) for slot in range(number)]

    def _slot(self, slot: int) -> Add:
        async def add(number: int, batch: list[Submission], on_reply: Callable[[], None]) -> Added | NoRoom:
            self.batches.append((slot, number, [str(order) for part in batch for order in part.orders]))
            await asyncio.sleep(0)
            if self.replies:
                reply = self.replies.pop(0)
                if isinstance(reply, NoRoom):
                    return reply
                raise reply
            self.waiting.append(asyncio.get_running_loop().create_future())
            self.is_asked.set()
            on_reply()
            await self.waiting[-1]
            return Added(frozenset())

        return add

    async def asked(self, times: int) -> None:
        while len(self.waiting) < times:
            self.is_asked.clear()
            await self.is_asked.wait()

    @property
    def orders(self) -> list[list[str]]:
        return [orders for _, _, orders in self.batches]


def commit_to(disk: FakeDisk, slots: int = 3, most: int = 2) -> OverlappingCommit:
    return OverlappingCommit(disk.slots(slots), most=most, limit=10, on_wait=lambda _: None)


def single(order_id: str) -> Submission:
    [submission] = submissions([order_id], None, 500)
    return submission


def tasks(calls: Sequence[Any]) -> list["asyncio.Task[int]"]:
    return [asyncio.create_task(call) for call in calls]


async def test_batches_are_sent_in_order_while_others_wait_to_be_confirmed() -> None:
    disk = FakeDisk()
    commit = commit_to(disk)

    calls = tasks([commit.submit(single(name)) for name in "abcdefgh"])
    await disk.asked(3)
    for _ in range(20):
        await asyncio.sleep(0)

    assert disk.orders == [["a", "b"], ["c", "d"], ["e", "f"]], "no more than there are slots"
    assert not any(call.done() for call in calls)
    disk.waiting[1].set_result(None)
    await asyncio.wait(calls[2:4])
    await disk.asked(4)
    assert [call.done() for call in calls] == [False, False, True, True, False, False, False, False]
    for waiting in disk.waiting:
        if not waiting.done():
            waiting.set_result(None)
    await asyncio.gather(*calls)
    assert disk.orders[3:] == [["g", "h"]]


async def test_a_batch_that_is_not_confirmed_is_sent_again_by_its_slot_under_its_number_before_any_other() -> None:
    disk = FakeDisk()
    commit = commit_to(disk, slots=2)
    calls = tasks([commit.submit(single(name)) for name in "abcdef"])
    await disk.asked(2)
    (first, number, orders), other = disk.batches

    disk.waiting[0].set_exception(QueueUnavailable("the connection was lost"))
    await disk.asked(3)
    disk.waiting[1].set_result(None)
    await disk.asked(4)

    assert disk.batches[2] == (first, number, orders)
    assert disk.batches[3] == (other[0], other[1] + 1, ["e", "f"])
    assert not calls[0].done()
    for waiting in disk.waiting[2:]:
        waiting.set_result(None)
    await asyncio.gather(*calls)


async def test_who_does_not_wait_is_told_that_a_batch_was_not_confirmed() -> None:
    disk = FakeDisk()
    commit = commit_to(disk)
    call, other = tasks([commit.try_submit(single("a")), commit.submit(single("b"))])
    await disk.asked(1)

    disk.waiting[0].set_exception(QueueUnavailable("not on Redis' disk"))

    with pytest.raises(QueueUnavailable, match="not on Redis' disk"):
        await call
    await disk.asked(2)
    assert disk.orders == [["a", "b"], ["b"]]
    disk.waiting[1].set_result(None)
    await other


async def test_what_does_not_fit_waits_while_what_is_in_the_stream_is_confirmed() -> None:
    disk = FakeDisk()
    commit = commit_to(disk)
    first = asyncio.create_task(commit.submit(single("a")))
    await disk.asked(1)
    disk.replies = [NoRoom(0), NoRoom(1)]

    later = tasks([commit.submit(single(name)) for name in "bc"])
    disk.waiting[0].set_result(None)
    await first
    await disk.asked(2)
    await disk.asked(3)

    assert disk.orders == [["a"], ["b", "c"], ["b", "c"], ["b"], ["c"]]
    for waiting in disk.waiting[1:]:
        waiting.set_result(None)
    await asyncio.gather(*later)


@pytest.mark.parametrize("error", [QueueRefused("no"), ZeroDivisionError("a bug")])
async def test_an_error_reaches_the_callers_of_its_batch_and_frees_its_slot(error: Exception) -> None:
    disk = FakeDisk()
    commit = commit_to(disk, slots=1)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    disk.replies = [error]

    with pytest.raises(type(error)):
        await commit.submit(single("a"))
    call = asyncio.create_task(commit.submit(single("b")))
    await disk.asked(1)
    disk.waiting[0].set_result(None)
    await call


async def test_small_batches_do_not_take_all_slots_while_confirming_takes_long() -> None:
    disk = FakeDisk()
    commit = commit_to(disk, slots=4, most=500)
    commit._average = 3600.0
    first = asyncio.create_task(commit.submit(single("a")))
    await disk.asked(1)

    calls = tasks([commit.submit(single(name)) for name in "bcd"])
    for _ in range(20):
        await asyncio.sleep(0)
    assert disk.orders == [["a"]], "they wait for each other"
    disk.waiting[0].set_result(None)
    await disk.asked(2)

    assert disk.orders == [["a"], ["b", "c", "d"]]
    disk.waiting[1].set_result(None)
    await asyncio.gather(first, *calls)


async def test_closed_it_leaves_nobody_waiting() -> None:
    disk = FakeDisk()
    commit = commit_to(disk, slots=2)
    calls = tasks([commit.submit(single(name)) for name in "abcdef"])
    await disk.asked(2)

    await commit.close()

    for call in calls:
        with pytest.raises(QueueUnavailable, match="closed"):
            await call
    with pytest.raises(QueueUnavailable, match="closed"):
        await commit.submit(single("g"))


async def test_cancelled_callers_take_no_other_with_them() -> None:
    disk = FakeDisk()
    commit = commit_to(disk)
    first, second, third = tasks([commit.submit(single(name)) for name in "abc"])
    await disk.asked(2)

    first.cancel()
    third.cancel()
    await asyncio.wait([first, third])
    for waiting in disk.waiting:
        waiting.set_result(None)

    assert await second == 0
    assert disk.orders == [["a", "b"], ["c"]]
