"""One worker on fakes, in virtual time, while the external API, Redis or PostgreSQL is unavailable."""

import asyncio
from itertools import pairwise

import pytest
from fakes.virtual_time import now, until, virtual_time
from fakes.workers import Workplace

from ingest.domain.deliveries.delivery import EntryRef
from ingest.domain.errors import CredentialFault, Fault, ThrottledFault, TransientFault, TransportFault

REFUSED = TransientFault("connection refused", reached=False)
BROKEN = TransientFault("HTTP 503")
OWN_BUG = TransportFault("our client failed")


def order_ids(count: int) -> list[str]:
    return [f"order-{number}" for number in range(count)]


async def works(place: Workplace) -> None:
    """Let the API have sent an order, which can be requested again."""
    place.group.add("canary")
    await until(lambda: "canary" in place.store.rows)


async def fails(place: Workplace, count: int) -> None:
    """Let the API have worked, and fail for so many orders until the circuit is open."""
    await works(place)
    place.upstream.fault = BROKEN
    place.group.add(*order_ids(count))
    await until(lambda: place.group.reasons)


def requested(place: Workplace) -> set[EntryRef]:
    """The pending entries whose order was requested."""
    asked = set(place.upstream.requested)
    return {entry for entry in place.group.pending if place.group.delivery(entry).order_id in asked}


# -- the external API -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [REFUSED, BROKEN, CredentialFault("HTTP 401"), OWN_BUG], ids=str)
def test_while_the_api_is_unavailable_everything_is_released_uncounted_and_afterwards_stored(fault: Fault) -> None:
    @virtual_time
    async def run() -> None:
        place = Workplace()
        async with place.worker(concurrency=10):
            await works(place)
            place.upstream.fault = fault
            entries = place.group.add(*order_ids(50))
            await until(lambda: place.group.reasons)
            await asyncio.sleep(300)

            assert {pending.count for pending in place.group.pending.values()} <= {0, 1}
            assert len(place.group.stream) == len(entries), "none has left the stream"
            [reason] = place.group.reasons["one"]
            assert reason.text == str(fault)

            place.upstream.fault = None
            answered_at = now()
            await place.finished()
            await until(lambda: not place.group.reasons)

        assert now() - answered_at < 20
        assert set(place.store.rows) == {"canary", *order_ids(50)}
        assert {row.attempts for row in place.store.rows.values()} == {1}
        assert place.group.dead == []

    run()


@virtual_time
async def test_a_bug_of_our_client_that_some_requests_meet_uses_up_no_attempt_and_no_delivery() -> None:
    place = Workplace()
    place.upstream.faults = dict.fromkeys(("order-3", "order-7"), OWN_BUG)
    place.group.add(*order_ids(20))

    async with place.worker(max_attempts=1, max_deliveries=2):
        await until(lambda: len(place.store.rows) == 18)
        await asyncio.sleep(60)
        place.upstream.faults.clear()
        await place.finished()

    assert {row.attempts for row in place.store.rows.values()} == {1}
    assert (len(place.store.rows), place.group.dead) == (20, [])


@virtual_time
async def test_during_an_outage_single_requests_are_sent_with_pauses() -> None:
    place = Workplace()
    async with place.worker():
        await fails(place, 20)
        before = len(place.upstream.requested), len(place.upstream.requested_once)
        await asyncio.sleep(400)

    assert len(place.upstream.requested) == before[0], "no order is fetched as if nothing were"
    assert 90 <= len(place.upstream.requested_once) - before[1] <= 150, "one about every four seconds"


@virtual_time
async def test_when_every_queued_order_is_broken_the_canary_request_ends_the_outage() -> None:
    place = Workplace()
    async with place.worker(max_attempts=2):
        await works(place)
        place.upstream.fault = BROKEN
        place.upstream.faults = dict.fromkeys(order_ids(12), BROKEN)
        place.group.add(*order_ids(12))
        await until(lambda: place.group.reasons)
        place.upstream.fault = None
        await until(lambda: not place.group.reasons)
        await until(lambda: len(place.group.dead) == 12, within=600)


@virtual_time
async def test_when_the_canary_has_become_invalid_an_order_of_the_queue_ends_the_outage() -> None:
    place = Workplace()
    async with place.worker():
        await fails(place, 12)
        place.upstream.fault, place.upstream.faults["canary"] = None, BROKEN
        await place.finished()

    assert set(order_ids(12)) <= set(place.store.rows)


@virtual_time
async def test_requests_that_hang_when_the_outage_begins_are_given_up_and_their_orders_released() -> None:
    place = Workplace()
    place.upstream.hanging = {"hangs"}
    async with place.worker():
        await works(place)
        [hangs] = place.group.add("hangs")
        await until(lambda: place.upstream.in_progress == ["hangs"])
        place.upstream.fault = BROKEN
        place.group.add(*order_ids(20))
        await until(lambda: place.group.reasons)
        await until(lambda: not place.upstream.in_progress, within=2)

        assert (place.group.pending[hangs].owner, place.group.pending[hangs].count) == (None, 0)


@virtual_time
async def test_probes_that_hang_are_ended_when_another_is_answered() -> None:
    place = Workplace()
    async with place.worker(concurrency=5):
        await works(place)
        place.upstream.fault = BROKEN
        place.group.add("hangs", *order_ids(10))
        await until(lambda: place.group.reasons)
        place.upstream.hanging = {"hangs"}
        await until(lambda: place.upstream.in_progress == ["hangs"])
        place.upstream.fault = None
        await until(lambda: set(order_ids(10)) <= set(place.store.rows))
        place.upstream.let_go("hangs")
        await place.finished()

    assert "hangs" in place.store.rows
    assert place.store.rows["hangs"].attempts == 1


@virtual_time
async def test_during_an_outage_a_stop_is_obeyed_at_once() -> None:
    place = Workplace()
    place.upstream.fault = REFUSED
    entries = place.group.add(*order_ids(30))
    async with place.worker() as worker:
        await until(lambda: place.group.reasons)
        await asyncio.sleep(60)
        asked_at = now()
        await worker.stop()

    assert now() - asked_at < 1.5
    assert {pending.owner for pending in place.group.pending.values()} <= {None}
    assert {pending.count for pending in place.group.pending.values()} <= {0}
    assert set(place.group.stream) == set(entries)


@virtual_time
async def test_an_api_that_asks_to_wait_gets_no_request_before_that_and_no_attempt_is_counted() -> None:
    place = Workplace()
    async with place.worker():
        await works(place)
        place.upstream.fault = ThrottledFault("HTTP 429", 30.0)
        place.group.add("a")
        await until(lambda: "a" in place.upstream.requested)
        place.upstream.fault = None
        place.group.add("b")
        await asyncio.sleep(29)
        assert "b" not in place.upstream.requested
        await until(lambda: {"a", "b"} <= set(place.store.rows))

    assert {row.attempts for row in place.store.rows.values()} == {1}


@virtual_time
async def test_a_probe_that_is_told_to_wait_is_followed_by_none_before_that() -> None:
    place = Workplace()
    async with place.worker():
        await fails(place, 30)
        place.upstream.fault = ThrottledFault("HTTP 503 with Retry-After", 30.0)
        before = len(place.upstream.requested_once)
        probes = []
        for probe in range(4):
            await until(lambda probe=probe: len(place.upstream.requested_once) > before + probe, within=100)  # type: ignore[misc]
            probes.append(now())

    # `until` looks ten times a second.
    assert min(later - earlier for earlier, later in pairwise(probes)) >= 30 - 0.1


# -- Redis ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_while_redis_is_unavailable_what_is_in_flight_is_stored_and_acked_afterwards() -> None:
    place = Workplace()
    place.upstream.hanging = set(order_ids(5))
    place.group.add(*order_ids(5))
    async with place.worker(concurrency=5):
        await until(lambda: len(place.upstream.in_progress) == 5)
        place.group.set_available(is_available=False)
        place.upstream.let_go(*order_ids(5))
        await until(lambda: len(place.store.rows) == 5)
        await asyncio.sleep(120)
        assert len(place.group.pending) == 5
        place.group.set_available(is_available=True)
        await place.finished()

    assert len(place.upstream.requested) == 5
    assert sum(map(len, place.store.statements)) == 5


@virtual_time
async def test_what_was_in_lost_replies_is_processed_and_its_deliveries_are_not_counted_again() -> None:
    place = Workplace()
    place.group.lost_replies.update(read=1, claim_own=5)
    place.upstream.answers.clear()
    place.group.add(*order_ids(40))

    async with place.worker():
        await until(lambda: len(place.upstream.in_progress) == 40)
        counts = {pending.count for pending in place.group.pending.values()}
        place.upstream.answers.set()
        await place.finished()

    assert counts == {1}
    assert set(place.store.rows) == set(order_ids(40))


@virtual_time
async def test_both_workers_survive_an_outage_of_redis_and_nothing_changes_hands() -> None:
    place = Workplace()
    place.upstream.hanging = set(order_ids(20))
    async with place.worker("one", concurrency=10), place.worker("two", concurrency=10):
        await asyncio.sleep(10)
        place.group.add(*order_ids(20))
        await until(lambda: len(place.upstream.in_progress) == 20)
        place.group.set_available(is_available=False)
        await asyncio.sleep(120)
        place.group.set_available(is_available=True)
        await asyncio.sleep(20)
        place.upstream.let_go(*order_ids(20))
        await place.finished()

    assert len(place.upstream.requested) == 20, "none is fetched twice"


# -- PostgreSQL -------------------------------------------------------------------------------------------------


@virtual_time
async def test_while_postgresql_is_unavailable_reading_stops_when_all_is_full_and_no_order_is_to_blame() -> None:
    place = Workplace()
    place.store.is_available = False
    place.group.add(*order_ids(500))

    async with place.worker(concurrency=20, batch_rows=50):
        await asyncio.sleep(120)
        pending = list(place.group.pending.values())
        place.store.is_available = True
        await place.finished()

    assert len(pending) <= 50 + 20 + 20 // 4, "a batch, the slots, and orders read ahead"
    assert set(place.store.rows) == set(order_ids(500))
    assert {row.attempts for row in place.store.rows.values()} == {1}
    assert (place.group.dead, place.group.waiting) == ([], [])


@virtual_time
async def test_a_commit_whose_reply_was_lost_is_sent_again_and_changes_nothing() -> None:
    place = Workplace()
    place.store.lost_replies = 2
    place.group.add("a")

    async with place.worker():
        await place.finished()

    assert len(place.store.statements) == 3
    assert set(place.store.rows) == {"a"}


@virtual_time
async def test_a_stop_while_postgresql_hangs_releases_what_is_not_committed() -> None:
    place = Workplace()
    place.store.answers.clear()
    place.group.add("a", "b")

    async with place.worker(shutdown_grace=3) as worker:
        await until(lambda: place.store.statements)
        await worker.stop()

    assert [(pending.owner, pending.count) for pending in place.group.pending.values()] == [(None, 0)] * 2
