"""A worker with results, on fakes: the result of each finished order is published, including every change."""

from fakes.virtual_time import until, virtual_time
from fakes.workers import Workplace

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import PermanentFault


@virtual_time
async def test_every_outcome_is_told() -> None:
    place = Workplace()
    place.store.erased.add("erased")
    place.upstream.faults = {"gone": PermanentFault(DeadReason.NOT_FOUND, "HTTP 404")}

    async with place.worker(results="on"):
        place.group.add("stored", "erased", "gone")
        await place.finished()
        place.group.add("stored")
        await place.finished()

    assert sorted(place.group.results) == [
        ("erased", "erased"),
        ("gone", "dead_lettered"),
        ("stored", "inserted"),
        ("stored", "unchanged"),
    ]


@virtual_time
async def test_a_row_whose_first_statement_was_not_answered_is_told_as_changed() -> None:
    place = Workplace()
    place.store.lost_replies = 1
    place.group.add("a", "b")

    async with place.worker(results="on"):
        await place.finished()

        assert sorted(place.group.results) == [("a", "changed"), ("b", "changed")]
        # Only then: the next delivery is certain again.
        place.group.add("a")
        await place.finished()

    assert place.group.results[2:] == [("a", "unchanged")]


@virtual_time
async def test_a_row_that_a_worker_may_have_stored_before_it_died_is_told_as_changed() -> None:
    place = Workplace()
    place.group.refused["ack_with_results"] = 1_000
    place.group.add("a")
    async with place.worker("one", results="on"):
        await until(lambda: place.group.calls["ack_with_results"])
    place.group.refused["ack_with_results"] = 0

    async with place.worker("two", results="on"):
        await place.finished()

    assert place.group.results == [("a", "changed")]


@virtual_time
async def test_a_reply_that_is_lost_tells_nothing_twice() -> None:
    place = Workplace()
    place.group.lost_replies["ack_with_results"] = 1
    place.group.add("a")

    async with place.worker(results="on"):
        await place.finished()
        await until(lambda: place.group.calls["ack_with_results"] == 2)

    assert place.group.results == [("a", "inserted")]
