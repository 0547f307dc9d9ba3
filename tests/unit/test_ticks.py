"""Sources of a process do their regular work at the same instants, about as often as each of them would by itself."""

import asyncio

from fakes.virtual_time import now, virtual_time

from ingest.flow.ticks import next_tick, sleep_to_tick


@virtual_time
async def test_those_that_begin_at_different_times_wake_at_the_same_instant() -> None:
    woken = []

    async def work(begins_after: float) -> None:
        await asyncio.sleep(begins_after)
        await sleep_to_tick(2.0)
        await sleep_to_tick(2.0)
        woken.append(now())

    await asyncio.gather(*(work(0.1 * number) for number in range(10)))

    assert len({round(at, 6) for at in woken}) <= 2, "apart only by whole intervals"
    assert (max(woken) - min(woken)) % 2.0 < 1e-6 or 2.0 - (max(woken) - min(woken)) % 2.0 < 1e-6


@virtual_time
async def test_work_that_takes_a_while_keeps_its_interval() -> None:
    await sleep_to_tick(2.0)
    began = now()

    for _ in range(10):
        await asyncio.sleep(1.5)
        await sleep_to_tick(2.0)

    assert round(now() - began, 6) == 20.0


def test_an_instant_that_is_very_near_is_left_out() -> None:
    at = next_tick(1000.0, 2.0)

    assert 1000.2 <= at <= 1002.2
    assert round(next_tick(at - 0.1, 2.0) - at, 6) == 2.0
    assert round(next_tick(at - 0.3, 2.0) - at, 6) == 0.0
