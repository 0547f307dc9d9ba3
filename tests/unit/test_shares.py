"""Shares of a capacity of one process: none of its sources can take what another one is entitled to."""

import asyncio

import pytest
from fakes.virtual_time import now, some_turns, virtual_time
from hypothesis import given
from hypothesis import strategies as st
from unit.test_buffer_limit import a_turn, taking
from unit.test_scheduler import Process

from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.shares import Share, Shares


def greedy(share: Share) -> int:
    """Take one after the other as long as there is room, and return how many."""
    before = share.taken
    while share.room() > 0:
        share.take()
    return share.taken - before


@pytest.mark.parametrize(("sources", "taken"), [(1, 100), (2, 70), (4, 59), (50, 46)])
def test_a_single_busy_source_gets_its_part_of_the_reserved_half_and_nearly_all_of_the_other(
    sources: int, taken: int
) -> None:
    shares = Shares(100)
    first = shares.add()
    for _ in range(sources - 1):
        shares.add()

    assert greedy(first) == taken


def test_two_busy_sources_get_the_same_however_long_one_of_them_has_been_busy() -> None:
    shares = Shares(1_800)
    first, second = shares.add(), shares.add()
    greedy(first)

    for _ in range(2_000):
        greedy(second)
        first.release()
        greedy(first)

    assert abs(first.taken - second.taken) <= 1
    assert first.taken + second.taken > 1_700


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(1, 30), st.booleans()), max_size=80))
def test_every_source_can_always_take_its_reserve_and_all_together_no_more_than_there_is(
    sources: int, steps: list[tuple[int, int, bool]]
) -> None:
    total = 40
    shares = Shares(total)
    each = [shares.add() for _ in range(sources)]

    for number, amount, is_taking in steps:
        share = each[number % sources]
        if is_taking:
            share.take(min(amount, share.room()))
        else:
            share.release(min(amount, share.taken))

        assert sum(share.taken for share in each) <= total
        assert all(share.taken + share.room() >= total // 2 // sources for share in each)
    for share in each:
        share.release(share.taken)
    assert shares.free == shares.common


def test_what_a_removed_source_has_not_released_is_there_for_the_others() -> None:
    shares = Shares(100)
    kept, removed = shares.add(), shares.add()
    greedy(removed)

    shares.remove(removed)
    removed.release(removed.taken)

    assert greedy(kept) == 100


class Busy(Process):
    """A scheduler that has a share of the slots of its process."""

    def __init__(self, shares: Shares) -> None:
        super().__init__(100, share=shares.add())

    async def fill(self, seconds: float) -> int:
        """Start as many as there are slots for, and return how many run."""
        for _ in range(await self.wait()):
            self.take(seconds)
        return len(self.scheduler.tasks)


@virtual_time
async def test_a_source_whose_requests_hang_leaves_slots_to_the_others() -> None:
    shares = Shares(100)
    hanging, other = Busy(shares), Busy(shares)

    assert await hanging.fill(3_600.0) == 70
    assert await other.fill(1.0) == 30
    await hanging.end()
    await other.end()


@virtual_time
async def test_a_source_that_waits_for_a_slot_gets_one_that_another_source_has_released() -> None:
    shares = Shares(100)
    one, other = Busy(shares), Busy(shares)
    await one.fill(5.0)
    await other.fill(3_600.0)
    waiting = asyncio.create_task(other.wait())
    await some_turns()
    before = now()

    assert await waiting > 0
    assert now() - before == 5.0
    await one.end()
    await other.end()


@virtual_time
async def test_a_delivery_read_ahead_begins_when_another_source_has_released_a_slot() -> None:
    shares = Shares(100)
    one, other = Busy(shares), Busy(shares)
    await one.fill(5.0)
    await other.fill(3_600.0)
    begun = []

    async def process(delivery: object, turn: asyncio.Future[None] | None) -> None:
        if turn is not None:
            await turn
        begun.append(delivery)

    other.scheduler.start_in_turn([other.next_delivery()], process)
    await some_turns()
    is_early = bool(begun)
    await asyncio.sleep(5.1)

    assert (is_early, len(begun)) == (False, 1)
    await other.end()


async def test_a_source_with_large_documents_leaves_buffer_space_to_the_others() -> None:
    rows, size = Shares(100), Shares(1_000)
    large, small = (BufferLimit(rows.add(), size.add()) for _ in range(2))

    while large.try_acquire(50):
        pass
    third = taking(large, 50)
    await a_turn()

    assert not third.done()
    assert [small.try_acquire(10) for _ in range(25)] == [True] * 25
    large.release(50)
    await a_turn()
    assert third.done()


async def test_a_document_larger_than_the_share_waits_until_no_source_uses_more_than_its_own() -> None:
    rows, size = Shares(100), Shares(1_000)
    one, other = (BufferLimit(rows.add(), size.add()) for _ in range(2))
    assert one.try_acquire(300)

    large = taking(other, 5_000)
    await a_turn()
    is_early = large.done()
    one.release(300)
    await a_turn()

    assert (is_early, large.done()) == (False, True)
    assert one.try_acquire(200), "its own part of the reserved half"
