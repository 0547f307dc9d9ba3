"""An entry is isolated from the redelivered entries of the other sources of its process, and from nothing else of them."""

import asyncio

import pytest
from fakes.virtual_time import now, some_turns, virtual_time

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.held import Held
from ingest.flow.isolation import Isolation


class Sources:
    """Two sources of a process. The other one holds an entry that was delivered `count` times."""

    def __init__(self, count: int) -> None:
        process = Isolation()
        self.held = Held(clock=now)
        self.own, self.other = process.of_source(Held(clock=now)), process.of_source(self.held)
        self.delivery = self.hold(1, count)
        self.results: list[tuple[bool, float]] = []

    def hold(self, number: int, count: int) -> Delivery:
        """Have the other source hold an entry."""
        delivery = Delivery(EntryRef("stream", f"{number}-0"), "a", 1.0, 1, count, None, {})
        self.held.add(delivery, asyncio.create_task(asyncio.sleep(0)))
        return delivery

    async def isolate(self) -> None:
        """Isolate an entry for a second."""
        began_at = now()
        async with self.own.alone() as is_alone:
            self.results.append((is_alone, now() - began_at))
            await asyncio.sleep(1.0)


@virtual_time
async def test_an_entry_waits_for_no_new_entry_of_another_source() -> None:
    sources = Sources(count=1)

    await sources.isolate()

    assert sources.results == [(True, 0.0)]
    assert sources.held.holds(sources.delivery)


@virtual_time
async def test_it_waits_for_redelivered_entries_of_another_source_which_claims_none_until_its_end() -> None:
    sources = Sources(count=2)
    isolating = asyncio.create_task(sources.isolate())
    await asyncio.sleep(2.0)
    before = list(sources.results), sources.other.may_claim(), sources.own.may_claim()

    sources.held.remove(sources.delivery)
    await isolating

    assert before == ([], False, True)
    assert sources.results == [(True, 2.0)]
    assert sources.other.may_claim()


@virtual_time
async def test_it_waits_for_the_entries_of_a_claim_that_another_source_has_begun() -> None:
    sources = Sources(count=1)

    with sources.other.claiming():
        isolating = asyncio.create_task(sources.isolate())
        await asyncio.sleep(1.0)
        before = list(sources.results)
    late = sources.hold(2, count=2)
    await asyncio.sleep(1.0)
    sources.held.remove(late)
    await isolating

    assert (before, sources.results) == ([], [(True, 2.0)])


@virtual_time
async def test_the_next_entry_waits_until_another_source_has_claimed() -> None:
    sources = Sources(count=1)
    isolating = asyncio.create_task(sources.isolate())
    await some_turns()
    may_claim = [sources.other.may_claim()]
    await isolating

    isolating = asyncio.create_task(sources.isolate())
    await asyncio.sleep(3.0)
    may_claim.append(sources.other.may_claim())
    with sources.other.claiming():
        pass
    await isolating

    assert may_claim == [False, True]
    assert sources.results == [(True, 0.0), (True, 3.0)]


@pytest.mark.parametrize("reads", [True, False])
@virtual_time
async def test_it_waits_for_some_seconds_only(reads: bool) -> None:  # noqa: FBT001  a parameter of the test
    sources = Sources(count=2 if reads else 1)
    if not reads:
        isolating = asyncio.create_task(sources.isolate())
        await some_turns()
        sources.other.may_claim()
        await isolating

    await sources.isolate()

    assert sources.results[-1] == (True, 5.0)


@virtual_time
async def test_only_one_source_isolates_an_entry_and_the_other_ones_release_theirs() -> None:
    sources = Sources(count=1)
    isolating = asyncio.create_task(sources.isolate())
    await some_turns()

    async with sources.other.alone() as is_alone:
        assert not is_alone
    isolating.cancel()
    await some_turns()

    assert sources.other.may_claim(), "the isolation ends, however"
