"""Room between fetch and commit: bounded in orders and bytes, given in turn, and never lost."""

import asyncio

import pytest
from fakes.workers import buffer_limit

from ingest.flow.buffer_limit import BufferLimit


async def a_turn() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def taking(buffer: BufferLimit, size: int) -> asyncio.Task[None]:
    return asyncio.create_task(buffer.acquire(size))


async def test_room_is_bounded_in_orders() -> None:
    buffer = buffer_limit(2, 1_000)
    await buffer.acquire(1)
    await buffer.acquire(1)

    third = taking(buffer, 1)
    await a_turn()
    assert not third.done()
    assert buffer.is_wanted
    buffer.release(1)
    await a_turn()

    assert third.done()
    assert not buffer.is_wanted


async def test_room_is_bounded_in_bytes() -> None:
    buffer = buffer_limit(100, 1_000)
    await buffer.acquire(600)

    second = taking(buffer, 401)
    await a_turn()
    assert not second.done()
    buffer.release(600)
    await a_turn()

    assert second.done()


async def test_a_document_larger_than_all_the_room_has_it_alone() -> None:
    buffer = buffer_limit(100, 1_000)
    await buffer.acquire(1)

    large = taking(buffer, 5_000)
    await a_turn()
    assert not large.done()
    buffer.release(1)
    await a_turn()
    assert large.done()
    small = taking(buffer, 1)
    await a_turn()
    assert not small.done()
    buffer.release(5_000)
    await a_turn()

    assert small.done()


async def test_small_documents_do_not_pass_a_large_one_that_waits() -> None:
    buffer = buffer_limit(100, 1_000)
    await buffer.acquire(900)
    large = taking(buffer, 800)
    await a_turn()

    small = taking(buffer, 50)
    await a_turn()
    assert not small.done()
    buffer.release(900)
    await a_turn()

    assert large.done()
    assert small.done()


@pytest.mark.parametrize("woken", [False, True])
async def test_who_is_cancelled_while_it_waits_has_taken_nothing(*, woken: bool) -> None:
    buffer = buffer_limit(1, 1_000)
    await buffer.acquire(1)
    first, second = taking(buffer, 1), taking(buffer, 1)
    await a_turn()

    if woken:
        buffer.release(1)
    first.cancel()
    if not woken:
        await a_turn()
        buffer.release(1)
    await a_turn()

    assert first.cancelled()
    assert second.done()
    assert not second.cancelled()


async def test_as_many_documents_are_requested_as_fit_by_the_size_of_recent_ones() -> None:
    buffer = buffer_limit(100, 4_000_000)
    fitting = [buffer.fitting()]
    for size in (1_000, 1_000_000, 1_000_000):
        await buffer.acquire(size)
        fitting.append(buffer.fitting())
    buffer.release(1_000, 1_000_000, 1_000_000)
    for _ in range(100):
        await buffer.acquire(1_000)
        buffer.release(1_000)
    fitting.append(buffer.fitting())

    assert fitting == [None, None, 2, 1, None]
