"""An entry is isolated from the deliveries of all sources of its process."""

import asyncio

from fakes.virtual_time import now, some_turns, virtual_time

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.held import Held
from ingest.flow.isolation import Isolation
from ingest.flow.read.reads_in_flight import ReadsInFlight


class Sources:
    """Two sources of a process. The other one holds a delivery."""

    def __init__(self) -> None:
        self.isolation = Isolation()
        self.own, self.other = Held(clock=now), Held(clock=now)
        self.other_reads = ReadsInFlight()
        self.isolation.add(self.own, ReadsInFlight())
        self.isolation.add(self.other, self.other_reads)
        self.delivery = Delivery(EntryRef("stream", "1-0"), "a", 1.0, 1, 1, None, {})
        self.other.add(self.delivery, asyncio.create_task(asyncio.sleep(0)))
        self.results: list[tuple[bool, float]] = []

    async def isolate(self, held: Held) -> None:
        """Isolate an entry for a second."""
        began_at = now()
        async with self.isolation.alone(held) as is_alone:
            self.results.append((is_alone, now() - began_at))
            await asyncio.sleep(1.0)


@virtual_time
async def test_an_entry_waits_for_the_deliveries_of_other_sources_which_read_nothing_until_its_end() -> None:
    sources = Sources()
    isolating = asyncio.create_task(sources.isolate(sources.own))
    await asyncio.sleep(2.0)
    before = list(sources.results)
    is_held_up = sources.isolation.is_for_another(sources.other)

    sources.other.remove(sources.delivery)
    await isolating

    assert (before, is_held_up) == ([], True)
    assert sources.results == [(True, 2.0)]
    assert not sources.isolation.is_for_another(sources.own)
    assert not sources.isolation.is_for_another(sources.other)


@virtual_time
async def test_it_waits_for_the_entries_of_a_read_that_another_source_has_begun() -> None:
    sources = Sources()
    sources.other.remove(sources.delivery)
    late = Delivery(EntryRef("stream", "2-0"), "b", 1.0, 1, 1, None, {})

    with sources.other_reads:
        isolating = asyncio.create_task(sources.isolate(sources.own))
        await asyncio.sleep(1.0)
        before = list(sources.results)
    sources.other.add(late, asyncio.create_task(asyncio.sleep(0)))
    await asyncio.sleep(1.0)
    sources.other.remove(late)
    await isolating

    assert (before, sources.results) == ([], [(True, 2.0)])


@virtual_time
async def test_it_waits_for_some_seconds_only() -> None:
    sources = Sources()

    await sources.isolate(sources.own)

    assert sources.results == [(True, 5.0)]


@virtual_time
async def test_only_one_source_isolates_an_entry_and_the_other_ones_release_theirs() -> None:
    sources = Sources()
    isolating = asyncio.create_task(sources.isolate(sources.own))
    await some_turns()

    await sources.isolate(sources.other)

    assert sources.results == [(False, 0.0)]
    isolating.cancel()
    await some_turns()
    assert not sources.isolation.is_for_another(sources.other), "the isolation ends, however"
