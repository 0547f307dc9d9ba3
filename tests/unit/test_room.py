"""Room between fetch and commit: bounded in orders and bytes, given in turn, and never lost."""

import asyncio

import pytest

from ingest.flow.room import Room


async def a_turn() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def taking(room: Room, size: int) -> asyncio.Task[None]:
    return asyncio.create_task(room.take(size))


async def test_room_is_bounded_in_orders() -> None:
    room = Room(2, 1_000)
    await room.take(1)
    await room.take(1)

    third = taking(room, 1)
    await a_turn()
    assert not third.done()
    assert room.is_wanted
    room.give_back(1)
    await a_turn()

    assert third.done()
    assert not room.is_wanted


async def test_room_is_bounded_in_bytes() -> None:
    room = Room(100, 1_000)
    await room.take(600)

    second = taking(room, 401)
    await a_turn()
    assert not second.done()
    room.give_back(600)
    await a_turn()

    assert second.done()


async def test_a_document_larger_than_all_the_room_has_it_alone() -> None:
    room = Room(100, 1_000)
    await room.take(1)

    large = taking(room, 5_000)
    await a_turn()
    assert not large.done()
    room.give_back(1)
    await a_turn()
    assert large.done()
    small = taking(room, 1)
    await a_turn()
    assert not small.done()
    room.give_back(5_000)
    await a_turn()

    assert small.done()


async def test_small_documents_do_not_pass_a_large_one_that_waits() -> None:
    room = Room(100, 1_000)
    await room.take(900)
    large = taking(room, 800)
    await a_turn()

    small = taking(room, 50)
    await a_turn()
    assert not small.done()
    room.give_back(900)
    await a_turn()

    assert large.done()
    assert small.done()


@pytest.mark.parametrize("woken", [False, True])
async def test_who_is_cancelled_while_it_waits_has_taken_nothing(*, woken: bool) -> None:
    room = Room(1, 1_000)
    await room.take(1)
    first, second = taking(room, 1), taking(room, 1)
    await a_turn()

    if woken:
        room.give_back(1)
    first.cancel()
    if not woken:
        await a_turn()
        room.give_back(1)
    await a_turn()

    assert first.cancelled()
    assert second.done()
    assert not second.cancelled()
