"""One worker on fakes, in virtual time: how it begins, works and stops."""

import asyncio
from contextvars import ContextVar

import pytest
from fakes.group import Pending
from fakes.upstream import MemoryUpstream, document
from fakes.virtual_time import now, until, virtual_time
from fakes.workers import Workplace

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import PermanentFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched


def order_ids(count: int) -> list[str]:
    return [f"order-{number}" for number in range(count)]


def unrequested(place: Workplace) -> set[str | None]:
    """The orders that were read and have not been requested."""
    return {place.group.delivery(entry).order_id for entry in place.group.pending}.difference(place.upstream.requested)


# -- work -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_every_order_is_stored_once_and_acked() -> None:
    place = Workplace()
    place.group.add(*order_ids(300))

    async with place.worker(concurrency=20):
        await place.finished()

    assert set(place.store.rows) == set(order_ids(300))
    assert len(place.upstream.requested) == sum(map(len, place.store.statements)) == 300
    assert place.group.stream == {}


class Marking(MemoryUpstream):
    """Leaves a context variable behind, as a user's function may."""

    mark = ContextVar("mark", default="none")

    def __init__(self) -> None:
        super().__init__(now)
        self.found: list[str] = []

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        self.found.append(self.mark.get())
        self.mark.set(request.order_id)
        return await super().fetch(request)


@virtual_time
async def test_what_user_code_leaves_behind_does_not_reach_another_order() -> None:
    place = Workplace()
    place.upstream = marking = Marking()
    place.group.add(*order_ids(10))

    async with place.worker(concurrency=1, transform="own:function"):
        await place.finished()

    assert marking.found == 10 * ["none"]


@virtual_time
async def test_nothing_is_acked_before_it_is_committed() -> None:
    place = Workplace()
    place.store.answers.clear()
    entries = place.group.add("a", "b")

    async with place.worker():
        await until(lambda: place.store.statements)
        await asyncio.sleep(10)
        before = place.group.calls["ack"], set(place.group.pending)
        place.store.answers.set()
        await place.finished()

    assert before == (0, set(entries))
    assert set(place.store.rows) == {"a", "b"}


@virtual_time
async def test_no_more_orders_are_requested_at_once_than_there_are_slots() -> None:
    place = Workplace()
    place.upstream.latency = 0.1
    place.group.add(*order_ids(100))
    most = 0

    async with place.worker(concurrency=7):
        while not place.group.is_empty():
            most = max(most, len(place.upstream.in_progress))
            await asyncio.sleep(0.01)

    assert most == 7


@virtual_time
async def test_what_waits_between_fetch_and_commit_is_bounded_in_bytes() -> None:
    place = Workplace()
    place.store.is_available = False
    place.group.add(*order_ids(50))

    async with place.worker(concurrency=3, batch_bytes=4 * len(document("order-0"))):
        await asyncio.sleep(60)
        requested = len(place.upstream.requested)
        place.store.is_available = True
        await place.finished()

    assert requested == 4 + 3, "four documents have room, and one waits in each slot"
    assert set(place.store.rows) == set(order_ids(50))


@virtual_time
async def test_a_failed_order_is_tried_again_later_until_it_is_dead_lettered() -> None:
    place = Workplace()
    place.upstream.faults = {"broken": TransientFault("HTTP 500"), "gone": PermanentFault(DeadReason.NOT_FOUND, "404")}
    place.group.add("good", "broken", "gone")

    async with place.worker(max_attempts=4):
        await until(lambda: len(place.group.dead) == 2, within=3_600)

    assert {(dead.order_id, dead.reason) for dead in place.group.dead} == {
        ("gone", DeadReason.NOT_FOUND),
        ("broken", DeadReason.ATTEMPTS_EXHAUSTED),
    }
    assert place.upstream.requested.count("broken") == 4
    assert set(place.store.rows) == {"good"}


@virtual_time
async def test_a_bug_met_by_one_delivery_stops_no_others_and_its_entry_comes_again_until_it_is_dead_lettered() -> None:
    place = Workplace()
    place.upstream.faults = {"bug": ZeroDivisionError()}
    place.group.add("bug", *order_ids(10))

    async with place.worker(max_deliveries=4):
        await until(lambda: len(place.store.rows) == 10)
        await until(lambda: len(place.group.pending) == 1, within=0.1)
        await until(lambda: place.group.dead, within=3_600)

    assert [(dead.order_id, dead.reason) for dead in place.group.dead] == [("bug", DeadReason.MAX_DELIVERIES)]
    assert place.upstream.requested.count("bug") == 4


@virtual_time
async def test_a_bug_met_by_a_delivery_of_a_lost_reply_stops_no_others_either() -> None:
    place = Workplace()
    place.upstream.faults = {"bug": ZeroDivisionError()}
    place.upstream.latency = 0.01

    async with place.worker(concurrency=1, max_deliveries=4):
        await until(lambda: place.group.calls["read"])
        place.group.lost_replies["read"] = 1
        place.group.add("bug", *order_ids(10))
        await until(lambda: len(place.store.rows) == 10)
        requested = place.upstream.requested.count("bug")
        await until(lambda: place.group.dead, within=3_600)

    # It was delivered once already, in a lost reply that the claim does not count.
    assert requested == 1
    assert [(dead.order_id, dead.reason) for dead in place.group.dead] == [("bug", DeadReason.MAX_DELIVERIES)]


# -- entries of other processes ------------------------------------------------------------------------------------------


@virtual_time
async def test_what_a_dead_worker_held_runs_elsewhere_within_ten_seconds() -> None:
    place = Workplace()
    place.upstream.answers.clear()
    async with place.worker("heir"), place.worker("victim", concurrency=5) as victim:
        await asyncio.sleep(10)
        place.group.add(*order_ids(150))
        await until(lambda: len(place.group.holds("victim")) == 5)
        await victim.die()
        died_at = now()
        place.upstream.answers.set()
        await place.finished()

    assert now() - died_at < 10
    assert set(place.store.rows) == set(order_ids(150))


@virtual_time
async def test_a_successor_of_the_same_name_continues_at_once_with_what_was_left() -> None:
    place = Workplace()
    place.upstream.answers.clear()
    place.group.add("a")
    async with place.worker() as killed:
        await until(lambda: place.upstream.in_progress)
        await killed.die()
    place.upstream.answers.set()
    started_at = now()

    async with place.worker():
        await place.finished()

    assert now() - started_at < 1
    assert place.store.rows["a"].attempts == 1


@virtual_time
async def test_an_entry_that_others_have_claimed_is_neither_processed_further_nor_stored() -> None:
    place = Workplace()
    place.upstream.hanging = {"stolen"}
    [entry] = place.group.add("stolen")

    async with place.worker():
        await until(lambda: place.upstream.in_progress)
        place.group.pending[entry] = Pending("two", 2, now())
        await until(lambda: not place.upstream.in_progress)

    assert place.store.statements == []
    assert place.group.holds("two") == [entry]


@virtual_time
async def test_a_worker_that_was_frozen_commits_nothing_that_others_have_claimed_meanwhile() -> None:
    place = Workplace()
    place.store.is_available = False
    kept, stolen = place.group.add("kept", "stolen")

    async with place.worker():
        await until(lambda: place.store.statements)
        place.group.clock = lambda: now() + 100.0  # for the queue, its heartbeat ended long ago
        place.group.pending[stolen] = Pending("two", 2, now() + 100.0)
        await until(lambda: place.group.calls["renew"])
        place.store.is_available = True
        await until(lambda: kept not in place.group.pending)
        await asyncio.sleep(5)

    assert set(place.store.rows) == {"kept"}
    assert place.group.holds("two") == [stolen]


# -- possible poison --------------------------------------------------------------------------------------------


@virtual_time
async def test_an_entry_that_may_be_poison_is_processed_while_nothing_else_is() -> None:
    place = Workplace()
    place.upstream.hanging = {"first", "poison"}
    place.group.add("first")
    async with place.worker(max_deliveries=10):
        await until(lambda: place.upstream.in_progress)
        [poison] = place.group.add("poison")
        place.group.undelivered.clear()
        place.group.pending[poison] = Pending(None, 4, now())
        await until(lambda: place.group.holds("one") and poison in place.group.holds("one"))
        place.group.add("last")
        calls = place.group.calls["read"], place.group.calls["claim_abandoned"]
        await asyncio.sleep(30)

        assert place.upstream.in_progress == ["first"], "it waits"
        assert (place.group.calls["read"], place.group.calls["claim_abandoned"]) == calls, "and does not poll"

        place.upstream.let_go("first")
        await until(lambda: place.upstream.in_progress == ["poison"])
        await asyncio.sleep(30)
        assert "last" not in place.upstream.requested

        place.upstream.let_go("poison")
        await place.finished()

    assert set(place.store.rows) == {"first", "poison", "last"}


@virtual_time
async def test_an_isolated_entry_is_released_when_a_stop_is_requested() -> None:
    place = Workplace()
    place.upstream.hanging = {"poison"}
    [poison] = place.group.add("poison")
    place.group.undelivered.clear()
    place.group.pending[poison] = Pending(None, 4, now())

    async with place.worker(shutdown_grace=5) as worker:
        await until(lambda: place.upstream.in_progress)
        await worker.stop()

    assert (place.group.pending[poison].owner, place.group.pending[poison].count) == (None, 4)


# -- the end ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_an_idle_worker_stops_within_a_read_and_leaves_the_group() -> None:
    place = Workplace()
    async with place.worker() as worker:
        await asyncio.sleep(10)
        asked_at = now()
        await worker.stop()

    assert now() - asked_at <= 1.5
    assert (place.group.heard_until, place.group.seen, place.group.leader[0]) == ({}, {}, "")


@virtual_time
async def test_what_ends_within_the_grace_period_is_finished() -> None:
    place = Workplace()
    place.upstream.latency = 4.0
    place.group.add(*order_ids(5))

    async with place.worker(shutdown_grace=5, concurrency=5) as worker:
        await until(lambda: len(place.upstream.in_progress) == 5)
        await worker.stop()

    assert set(place.store.rows) == set(order_ids(5))
    assert place.group.is_empty()


@virtual_time
async def test_what_does_not_end_within_the_grace_period_is_released_uncounted() -> None:
    place = Workplace()
    place.upstream.hanging = {"hangs"}
    hangs, _, unread = place.group.add("hangs", "ends", "unread")

    async with place.worker(shutdown_grace=5, concurrency=2) as worker:
        await until(lambda: "ends" in place.store.rows or len(place.upstream.in_progress) == 2)
        worker.shutdown.request("test")
        asked_at = now()
        await worker.stop()

    assert 5 <= now() - asked_at < 7
    assert (place.group.pending[hangs].owner, place.group.pending[hangs].count) == (None, 0)
    assert place.group.seen == {}
    assert "hangs" not in place.store.rows
    assert unread in place.group.undelivered or "unread" in place.store.rows


@virtual_time
async def test_asked_to_hurry_it_waits_for_nothing_but_the_last_commit() -> None:
    place = Workplace()
    place.upstream.hanging = {"hangs"}
    place.store.answers.clear()
    place.group.add("hangs", "commits")

    async with place.worker() as worker:
        await until(lambda: place.store.statements)
        asyncio.get_running_loop().call_later(1.0, place.store.answers.set)
        asked_at = now()
        await worker.stop(hurry=True)

    assert now() - asked_at < 2
    assert set(place.store.rows) == {"commits"}
    assert [pending.owner for pending in place.group.pending.values()] == [None]


@virtual_time
async def test_while_redis_is_unavailable_it_stops_all_the_same_and_its_entries_stay_pending() -> None:
    place = Workplace()
    place.upstream.answers.clear()
    [entry] = place.group.add("a")

    async with place.worker(shutdown_grace=5) as worker:
        await until(lambda: place.upstream.in_progress)
        place.group.set_available(is_available=False)
        asked_at = now()
        await worker.stop()

    assert now() - asked_at < 10
    assert place.group.holds("one") == [entry]


@virtual_time
async def test_asked_to_stop_before_redis_has_answered_it_reads_nothing() -> None:
    place = Workplace()
    place.group.set_available(is_available=False)
    place.group.add("a")

    async with place.worker() as worker:
        await asyncio.sleep(30)
        await worker.stop()

    assert place.group.calls["read"] == place.group.calls["claim_own"] == 0


@virtual_time
async def test_asked_to_stop_before_the_reply_to_its_first_heartbeat_has_come_it_leaves_the_group() -> None:
    place = Workplace()
    held = place.group.add("a")[0]
    place.group.undelivered.clear()
    place.group.pending[held] = Pending("one", 1, now())
    place.group.lost_replies["heartbeat"] = 1_000

    async with place.worker() as worker:
        await until(lambda: "one" in place.group.heard_until)
        asked_at = now()
        await worker.stop()

    assert now() - asked_at < 2
    assert place.group.leader == ("", 0.0)
    assert place.group.heard_until == {"one": 0.0}, "others may claim at once what its predecessor held"
    assert place.group.pending[held].count == 1


@virtual_time
async def test_cancelled_it_drops_everything_at_once_and_releases_nothing() -> None:
    place = Workplace()
    place.upstream.answers.clear()
    entries = place.group.add("a", "b")

    async with place.worker() as worker:
        await until(lambda: len(place.upstream.in_progress) == 2)
        cancelled_at = now()
        await worker.die()

    assert now() == cancelled_at
    assert place.group.holds("one") == entries
    assert place.group.calls["release"] == place.group.calls["leave"] == 0


@pytest.mark.parametrize("call", ["ack", "release", "reschedule", "dead_letter", "heartbeat", "leave"])
def test_a_lost_reply_changes_nothing(call: str) -> None:
    @virtual_time
    async def run() -> None:
        place = Workplace()
        place.group.lost_replies[call] = 1
        place.upstream.faults = {"later": TransientFault("HTTP 500"), "bad": PermanentFault(DeadReason.REJECTED, "no")}
        place.upstream.hanging = {"hangs"}
        place.group.add("good", "later", "bad", "hangs")

        async with place.worker(max_attempts=2, shutdown_grace=2) as worker:
            await until(lambda: len(place.group.dead) == 2 and "good" in place.store.rows)
            await worker.stop()

        assert place.group.lost_replies[call] == 0
        assert [(pending.owner, pending.count) for pending in place.group.pending.values()] == [(None, 0)]
        assert place.group.waiting == []
        assert sorted(str(dead.order_id) for dead in place.group.dead) == ["bad", "later"]

    run()
