"""Settlement on fakes: the contents of batches, acks, and the other outcomes."""

import asyncio
from datetime import timedelta

import msgspec
import pytest
from fakes.group import Pending
from fakes.upstream import document
from fakes.virtual_time import now, some_turns, until, virtual_time
from fakes.workers import buffer_limit
from unit.settling import AT, ROWS, Process, order_names, settling

from ingest.domain.deliveries.delivery import DeadReason, Effect, RetryReason
from ingest.domain.deliveries.outcome import DeadLetter, Release, Retry, Store
from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.settle.rows import Item
from ingest.flow.settle.settlement import Settlement
from ingest.flow.settle.writer import Writer

LATER = Retry(60.0, 2, RetryReason.HTTP_STATUS, "HTTP 500")
GONE = DeadLetter(DeadReason.NOT_FOUND, "HTTP 404")


# -- batches ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_lone_order_waits_for_nothing() -> None:
    async with settling() as process:
        before = now()
        await process.store_each("a")
        await some_turns()

        assert set(process.store.rows) == {"a"}
        assert now() == before
        await until(process.group.is_empty, within=0.1)
        assert len(process.in_flight) == 0


@virtual_time
async def test_what_comes_while_a_batch_commits_is_stored_together_with_the_next() -> None:
    async with settling() as process:
        process.store.answers.clear()
        await process.store_each("a")
        await some_turns()
        await process.store_each("b", "c", "d")
        await some_turns()
        process.store.answers.set()
        await until(process.group.is_empty)

        assert process.store.statements == [["a"], ["b", "c", "d"]]
        assert process.group.calls["ack"] == 1


@virtual_time
async def test_with_a_backlog_an_order_waits_a_moment_for_those_in_flight() -> None:
    async with settling() as process:
        process.settlement.expect_more(backlog=True)
        await process.deliver("slow", seconds=60)
        before = now()
        await process.store_each("a")
        await asyncio.sleep(0.015)
        await process.store_each("b")
        await until(lambda: bool(process.store.statements))

        assert process.store.statements == [["a", "b"]]
        assert 0.035 < now() - before < 0.05


@virtual_time
async def test_with_a_backlog_a_full_batch_waits_for_nothing() -> None:
    async with settling() as process:
        process.settlement.expect_more(backlog=True)
        await process.deliver("slow", seconds=60)
        before = now()
        await process.store_each(*order_names(ROWS))
        await until(lambda: bool(process.store.statements), within=0.03)

        assert len(process.store.statements[0]) == ROWS
        assert now() - before < 0.01


@virtual_time
async def test_with_a_backlog_the_last_order_waits_for_nothing_more() -> None:
    async with settling() as process:
        process.settlement.expect_more(backlog=True)
        before = now()
        await process.store_each("a")
        await until(process.group.is_empty)

        assert now() - before < 0.01


@virtual_time
async def test_all_orders_of_a_document_are_committed_together_and_its_entry_is_acked_once() -> None:
    async with settling() as process:
        [delivery] = await process.deliver("document")
        await process.store_orders(delivery, "a", "b", "c")
        await until(process.group.is_empty)

        assert process.store.statements == [["a", "b", "c"]]
        assert set(process.store.rows) == {"a", "b", "c"}


@virtual_time
async def test_an_entry_whose_document_has_no_orders_is_acked_without_a_statement() -> None:
    async with settling() as process:
        [delivery] = await process.deliver("document")
        await process.store_orders(delivery)
        await until(process.group.is_empty)

        assert process.store.statements == []
        assert process.group.stream == {}


@virtual_time
async def test_a_batch_that_is_too_slow_is_halved_until_it_is_not() -> None:
    async with settling() as process:
        process.store.most = 10
        order_ids = order_names(64)
        await process.store_each(*order_ids)
        await until(process.group.is_empty)

        assert [len(statement) for statement in process.store.statements[:4]] == [64, 32, 16, 8]
        assert set(process.store.rows) == set(order_ids)


@virtual_time
async def test_a_locked_row_is_postponed_uncounted_and_the_others_are_stored() -> None:
    async with settling() as process:
        await process.store_each("locked")
        await until(process.group.is_empty)
        process.store.locked_ids = {"locked", "unknown"}
        await process.store_each("a", "locked", "b")
        await until(lambda: process.group.waiting and not process.in_flight.deliveries())

        assert set(process.store.rows) == {"a", "b", "locked"}
        assert process.store.waits == [["a", "locked", "b"]]
        [waiting] = process.group.waiting
        assert (waiting.fields[b"order_id"], waiting.fields[b"attempt"]) == (b"locked", b"1")
        assert waiting.due > now()
        assert process.buffer.is_wanted is False


@virtual_time
async def test_an_order_that_somebody_else_has_inserted_and_not_committed_is_postponed_and_the_others_are_stored() -> (
    None
):
    async with settling() as process:
        order_ids = order_names(40)
        inserting = {"order-3", "order-17", "order-18"}
        process.store.inserting_ids = set(inserting)
        await process.store_each(*order_ids)
        await until(lambda: len(process.group.waiting) == 3 and not process.in_flight.deliveries())

        assert set(process.store.rows) == set(order_ids) - inserting
        assert {waiting.fields[b"order_id"].decode() for waiting in process.group.waiting} == inserting
        assert len(process.store.waits) == 1


@virtual_time
async def test_while_every_row_waits_for_somebody_elses_lock_a_few_are_postponed_at_most() -> None:
    async with settling() as process:
        order_ids = order_names(60)
        process.store.inserting_ids = set(order_ids)
        await process.store_each(*order_ids)
        before = now()
        await until(lambda: now() > before + 60, within=120)
        assert len(process.group.waiting) <= 16
        process.store.inserting_ids = set()
        await until(lambda: not process.in_flight.deliveries())

        assert len(process.store.rows) + len(process.group.waiting) == 60


@virtual_time
async def test_many_locked_rows_are_waited_for() -> None:
    async with settling() as process:
        order_ids = order_names(40)
        await process.store_each(*order_ids)
        await until(process.group.is_empty)
        process.store.locked_ids = set(order_ids)
        await process.store_each(*order_ids)
        before = now()
        await until(lambda: now() > before + 60, within=120)
        assert process.group.waiting == []
        process.store.locked_ids = set()
        await until(process.group.is_empty)

        assert process.group.waiting == []


@virtual_time
async def test_what_others_have_claimed_before_the_commit_is_not_stored() -> None:
    async with settling() as process:
        process.store.is_available = False
        await process.store_each("kept", "lost")
        await some_turns()
        [lost] = [each for each in process.in_flight.deliveries() if each.order_id == "lost"]
        process.group.pending[lost.entry] = Pending("two", 2, now())
        process.in_flight.lose([lost.entry])
        process.store.is_available = True
        await until(lambda: process.group.calls["ack"])

        assert set(process.store.rows) == {"kept"}
        assert process.group.holds("two") == [lost.entry]


@virtual_time
async def test_after_the_last_heartbeat_has_expired_nothing_is_stored_that_others_have_claimed() -> None:
    async with settling(sends_heartbeats=False) as process:
        kept, lost = await process.deliver("kept", "lost")
        await asyncio.sleep(100)
        process.group.pending[lost.entry] = Pending("two", 2, now())
        await process.store_orders(lost, "lost")
        await process.store_orders(kept, "kept")
        await until(lambda: process.store.rows)

        assert set(process.store.rows) == {"kept"}


@virtual_time
async def test_if_the_last_heartbeat_expires_during_a_commit_nothing_is_acked_that_others_have_claimed() -> None:
    async with settling(sends_heartbeats=False) as process:
        process.store.answers.clear()
        await process.store_each("kept", "lost")
        kept, lost = process.in_flight.deliveries()
        await asyncio.sleep(100)
        process.group.pending[lost.entry] = Pending("two", 2, now())
        process.store.answers.set()
        await until(lambda: kept.entry not in process.group.pending)

        assert process.in_flight.deliveries() == []
        assert process.queue.acked == [kept.entry]


@virtual_time
async def test_the_buffer_is_empty_again_when_everything_is_settled_stored_or_lost() -> None:
    async with settling() as process:
        process.store.is_available = False
        await process.store_each(*order_names(ROWS))
        process.in_flight.lose([delivery.entry for delivery in process.in_flight.deliveries()[:5]])
        process.store.is_available = True
        await until(lambda: not process.in_flight.deliveries())
        await some_turns()

        for _ in range(ROWS):
            await asyncio.wait_for(process.buffer.acquire(1), 1)


# -- moves ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_each_outcome_has_its_place() -> None:
    async with settling() as process:
        later, gone, released = await process.deliver("later", "gone", "released")
        await process.settle(later, LATER)
        await process.settle(gone, GONE)
        await process.settle(released, Release("the circuit is open"))

        assert [waiting.fields[b"attempt"] for waiting in process.group.waiting] == [b"2"]
        assert process.dead() == {("gone", "not_found")}
        assert [(each.owner, each.count) for each in process.group.pending.values()] == [(None, 0)]
        assert len(process.in_flight) == 0


@virtual_time
async def test_a_move_waits_while_redis_is_unavailable_and_is_made_once() -> None:
    async with settling() as process:
        later, gone = await process.deliver("later", "gone")
        process.group.set_available(is_available=False)
        moving = [asyncio.create_task(process.settle(later, LATER)), asyncio.create_task(process.settle(gone, GONE))]
        await asyncio.sleep(60)
        assert len(process.in_flight) == 2
        process.group.lost_replies.update(reschedule=1, dead_letter=1)
        process.group.set_available(is_available=True)
        await asyncio.wait(moving)

        assert (len(process.group.waiting), len(process.group.dead), len(process.in_flight)) == (1, 1, 0)


@virtual_time
async def test_what_others_have_claimed_is_not_moved_and_is_held_no_more() -> None:
    async with settling() as process:
        deliveries = await process.deliver("a", "b", "c")
        for delivery in deliveries:
            process.group.pending[delivery.entry] = Pending("two", 2, now())
        for delivery, outcome in zip(deliveries, (LATER, GONE, Release("")), strict=True):
            await process.settle(delivery, outcome)

        assert (process.group.waiting, process.group.dead, len(process.in_flight)) == ([], [], 0)
        assert len(process.group.holds("two")) == 3


@virtual_time
async def test_what_is_released_while_redis_is_unavailable_goes_together_when_it_is_back() -> None:
    async with settling() as process:
        deliveries = await process.deliver(*"abcde")
        process.group.set_available(is_available=False)
        releasing = [asyncio.create_task(process.settlement.moves.release([delivery])) for delivery in deliveries]
        await asyncio.sleep(60)
        calls = process.group.calls["release"]
        process.group.set_available(is_available=True)
        await asyncio.wait(releasing)

        assert process.group.calls["release"] - calls == 2, "the one that waited, and the four behind it"
        assert {(each.owner, each.count) for each in process.group.pending.values()} == {(None, 0)}
        assert len(process.in_flight) == 0


@virtual_time
async def test_a_release_that_was_cancelled_is_made_at_the_end() -> None:
    async with settling() as process:
        [delivery] = await process.deliver("a")
        process.group.set_available(is_available=False)
        releasing = asyncio.create_task(process.settlement.moves.release([delivery]))
        await asyncio.sleep(60)
        releasing.cancel()
        await asyncio.wait([releasing])
        process.group.set_available(is_available=True)

        assert await process.settlement.moves.release_rest() == 1
        assert [(each.owner, each.count) for each in process.group.pending.values()] == [(None, 0)]


@virtual_time
async def test_a_release_that_was_cancelled_on_behalf_of_others_is_made_by_the_next_of_them() -> None:
    async with settling() as process:
        deliveries = await process.deliver(*"abc")
        process.group.set_available(is_available=False)
        first, second, third = (
            asyncio.create_task(process.settlement.moves.release([delivery])) for delivery in deliveries
        )
        for releasing in (first, second):
            await asyncio.sleep(60)
            releasing.cancel()
            await asyncio.wait([releasing])
        process.group.set_available(is_available=True)
        await third

        assert process.group.pending[deliveries[2].entry].owner is None
        assert process.in_flight.deliveries() == deliveries[:2]


# -- rows that are rejected --------------------------------------------------------------------------------------------


# How a table takes no row: it rejects the statement, or a trigger suppresses the row.
@pytest.mark.parametrize("way", ["refuses", "suppresses"])
@virtual_time
async def test_a_row_that_is_not_taken_is_dead_lettered_when_others_are_stored(way: str) -> None:
    async with settling() as process:
        setattr(process.store, way, lambda row: row.order_id in ("bad", "worse"))
        await process.store_each("a", "bad", "b", "worse")
        await until(process.group.is_empty)

        assert process.dead() == {("bad", "unstorable"), ("worse", "unstorable")}
        assert set(process.store.rows) == {"a", "b"}
        assert len(process.queue.acked) == 2
        assert len(process.in_flight) == 0


@pytest.mark.parametrize("way", ["refuses", "suppresses"])
@virtual_time
async def test_when_no_row_is_taken_it_is_the_table_and_none_is_to_blame(way: str) -> None:
    async with settling() as process:
        setattr(process.store, way, lambda _: True)
        await process.store_each(*order_names(30))
        await asyncio.sleep(300)
        before = (process.dead(), len(process.in_flight), len(process.queue.acked))
        asked = len(process.store.statements)
        setattr(process.store, way, lambda _: False)
        await until(process.group.is_empty)

        assert before == (set(), 30, 0)
        assert asked < 300 * 20, "a look each second or two, of a dozen statements"
        assert set(process.store.rows) == set(order_names(30))


@pytest.mark.parametrize("way", ["refuses", "suppresses"])
@virtual_time
async def test_if_no_row_is_taken_after_one_was_stored_it_is_the_table(way: str) -> None:
    async with settling() as process:
        # An administrator adds a constraint or a trigger just after the first row.
        setattr(process.store, way, lambda row: row.order_id != "first" or bool(process.store.rows))
        await process.store_each("first", "a", "b")
        await asyncio.sleep(60)
        before = (process.dead(), set(process.store.rows))

        setattr(process.store, way, lambda _: False)
        await process.store_each("last")
        await until(process.group.is_empty)

        assert before == (set(), {"first"})
        assert set(process.store.rows) == {"first", "a", "b", "last"}


@virtual_time
async def test_a_refused_row_that_is_alone_is_held_until_another_is_stored() -> None:
    async with settling() as process:
        process.store.refuses = lambda row: row.order_id == "bad"
        await process.store_each("bad")
        await asyncio.sleep(120)
        assert process.dead() == set()
        assert process.group.holds("one"), "its lease is kept"

        await process.store_each("good")
        await until(process.group.is_empty)

        assert process.dead() == {("bad", "unstorable")}


@virtual_time
async def test_a_document_of_which_one_order_is_suppressed_is_dead_lettered_and_its_other_orders_are_stored() -> None:
    async with settling() as process:
        process.store.suppresses = lambda row: row.order_id == "bad"
        [mixed, good] = await process.deliver("mixed", "good")
        await process.store_orders(mixed, "bad", "fine")
        await process.store_orders(good, "good")
        await until(process.group.is_empty)

        assert process.dead() == {("mixed", "unstorable")}
        assert set(process.store.rows) == {"fine", "good"}


@virtual_time
async def test_what_is_stored_beside_a_suppressed_order_is_a_change_when_its_document_is_written_again() -> None:
    async with settling() as process:
        writer = Writer(process.store, process.in_flight, process.heartbeats, process.metrics, ROWS, now=now)
        process.store.suppresses = lambda row: row.order_id == "bad"
        [delivery] = await process.deliver("mixed")
        orders = [decode_order(document(order_id), order_id) for order_id in ("bad", "fine")]
        item = Item(delivery, [OrderRow.of(order, AT, 1, 0.0) for order in orders], 1)

        first = await writer.write([item])
        process.store.suppresses = lambda _: False
        second = await writer.write([item])

        assert ([refusal.item for refusal in first.refused], first.effects) == ([item], [])
        assert second.effects == [Effect.INSERTED, Effect.CHANGED]


@virtual_time
async def test_an_older_document_of_a_suppressed_order_is_stored_by_itself() -> None:
    async with settling() as process:
        process.store.suppresses = lambda row: row.status == "paid"
        [older, newer, other] = await process.deliver("a", "a", "b")
        for delivery, status in ((older, "placed"), (newer, "paid"), (other, "placed")):
            await process.buffer.acquire(1)
            order = msgspec.structs.replace(decode_order(document("x"), "x"), id=str(delivery.order_id), status=status)
            fetched_at = AT if delivery is not newer else AT + timedelta(seconds=1)
            await process.settle(delivery, Store((order,), fetched_at, 1))
        await until(process.group.is_empty)

        assert [dead.order_id for dead in process.group.dead] == ["a"]
        assert {row.order_id: row.status for row in process.store.rows.values()} == {"a": "placed", "b": "placed"}


@virtual_time
async def test_a_row_that_no_table_could_hold_is_dead_lettered_at_once() -> None:
    async with settling() as process:
        process.store.refuses = lambda row: row.order_id == "bad"
        process.store.is_certain = True
        await process.store_each("bad")
        await some_turns()

        assert process.dead() == {("bad", "unstorable")}
        assert len(process.in_flight) == 0


@virtual_time
async def test_while_others_need_their_space_refused_rows_go_to_the_retry_set_a_few_at_a_time_and_uncounted() -> None:
    async with settling() as process:
        process.store.refuses = lambda _: True
        await process.store_each(*order_names(ROWS))
        wanting = asyncio.create_task(process.buffer.acquire(1))
        await until(lambda: process.group.waiting)
        postponed = len(process.group.waiting)
        await until(wanting.done)

        assert postponed == ROWS // 20 + 1
        assert {waiting.fields[b"attempt"] for waiting in process.group.waiting} == {b"1"}
        assert process.dead() == set()


@virtual_time
async def test_while_an_entry_is_isolated_no_refused_row_is_held() -> None:
    async with settling() as process:
        process.store.refuses = lambda _: True
        await process.store_each(*"abc")
        await asyncio.sleep(10)
        with process.settlement.holding_no_rows():
            await until(lambda: len(process.in_flight) == 0)
            assert len(process.group.waiting) == 3


# -- the end ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_at_the_end_everything_gathered_is_stored_and_acked() -> None:
    process = Process()
    await process.heartbeats.send()
    await process.store_each(*"abc")
    process.settlement.finish()

    await process.settlement.run()

    assert set(process.store.rows) == set("abc")
    assert process.group.is_empty()


@virtual_time
async def test_at_the_end_nothing_waits_for_what_is_refused_and_it_is_released_uncounted() -> None:
    async with settling() as process:
        process.store.refuses = lambda _: True
        await process.store_each(*"abc")
        await asyncio.sleep(10)
        process.settlement.finish()
        running = asyncio.create_task(process.settlement.run())
        await until(running.done, within=5)

        assert await process.settlement.moves.release_rest() == 3
        assert {(each.owner, each.count) for each in process.group.pending.values()} == {(None, 0)}


@virtual_time
async def test_an_order_of_which_no_row_can_be_made_keeps_no_buffer_space() -> None:
    process = Process()
    (delivery,) = await process.deliver("a")
    order = msgspec.structs.replace(decode_order(document("a"), "a"), attributes={"gift": object()})
    process.buffer = buffer_limit(1, 10**9)
    settlement = Settlement(
        process.queue, process.store, process.in_flight, process.heartbeats, process.metrics, process.buffer, now=now
    )
    assert process.buffer.try_acquire(10)

    with pytest.raises(TypeError):
        settlement.store(delivery, Store((order,), AT, 10))

    assert process.buffer.try_acquire(10)


@virtual_time
async def test_of_two_orders_whose_entries_have_one_id_since_a_failover_both_are_released() -> None:
    async with settling() as process:
        [before] = await process.deliver("before")
        process.group.refused["release"] = 1_000
        moving = asyncio.create_task(process.settle(before, Release("the circuit is open")))
        await until(lambda: process.group.calls["release"] > 0)
        lost = process.group.add_entry({b"order_id": b"lost"}, "5-1")
        [first] = await process.queue.read(1, 0)
        releasing = asyncio.create_task(process.settle(first, Release("the circuit is open")))
        process.group.lose(lost)
        process.group.add_entry({b"order_id": b"other"}, "5-1")
        [second] = await process.queue.read(1, 0)

        again = asyncio.create_task(process.settle(second, Release("the circuit is open")))
        await some_turns()
        process.group.refused["release"] = 0
        await asyncio.gather(moving, releasing, again)

        assert {entry: pending.owner for entry, pending in process.group.pending.items()} == {
            before.entry: None,
            lost: None,
        }
        assert [waiting.fields[b"order_id"] for waiting in process.group.waiting] == [b"lost"]
