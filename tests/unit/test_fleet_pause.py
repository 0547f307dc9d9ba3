"""A pause that the API requests from one process reaches all processes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from fakes.virtual_time import now, until, virtual_time

from ingest.domain.errors import QueueUnavailable
from ingest.flow.pace.fleet_pause import FleetPause
from ingest.flow.pace.pauses import Pauses


class Fleet:
    """Keeps the contract of `FleetPauses`."""

    def __init__(self) -> None:
        self.until = 0.0
        self.published: list[float] = []
        self.asked = 0
        self.is_available = True

    async def pause(self, seconds: float) -> float:
        self.asked += 1
        if not self.is_available:
            raise QueueUnavailable("down")
        if seconds:
            self.published.append(seconds)
        self.until = max(self.until, now() + seconds)
        return max(0.0, self.until - now())


async def processes(
    check: Callable[[Fleet, Pauses, Pauses], Awaitable[None]], in_flight: Sequence[str] = ("an order",)
) -> None:
    """Two processes that exchange fleet."""
    fleet = Fleet()
    told, other = (Pauses(clock=now, draw=lambda low, _: low) for _ in range(2))
    running = [asyncio.create_task(FleetPause(fleet, pacing, in_flight, clock=now).run()) for pacing in (told, other)]
    try:
        await check(fleet, told, other)
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


def refuse(pacing: Pauses, told: float | None) -> None:
    pacing.count_throttle()
    pacing.record_throttle(told)


@virtual_time
async def test_all_pause_about_a_second_after_one_was_told_and_go_on_when_it_is_over() -> None:
    async def check(fleet: Fleet, told: Pauses, other: Pauses) -> None:
        del fleet
        ends_at = now() + 30.0
        refuse(told, 30.0)

        await until(lambda: other.delay() > 0, within=1.3)

        assert other.is_on
        assert now() + other.delay() == pytest.approx(ends_at, abs=0.2)
        await asyncio.sleep(30.0)
        assert other.delay() <= 0
        assert not other.is_on

    await processes(check)


@virtual_time
async def test_processes_without_orders_ask_seldom_and_learn_of_it_nevertheless() -> None:
    async def check(fleet: Fleet, told: Pauses, other: Pauses) -> None:
        await asyncio.sleep(60.0)
        assert 2 * 8 <= fleet.asked <= 2 * 14
        refuse(told, 30.0)

        await until(lambda: other.delay() > 0, within=6.0)

    await processes(check, in_flight=())


@virtual_time
async def test_many_refusals_are_published_as_one_pause() -> None:
    async def check(fleet: Fleet, told: Pauses, other: Pauses) -> None:
        del other
        for _ in range(100):
            told.record_throttle(30.0)
            await asyncio.sleep(0.001)
        await asyncio.sleep(2.0)

        assert len(fleet.published) == 1

    await processes(check)


@pytest.mark.parametrize("told_for", [None, 0.0, 1.0])
def test_a_pause_that_ends_before_others_learn_of_it_stays_with_the_process(told_for: float | None) -> None:
    @virtual_time
    async def run() -> None:
        async def check(fleet: Fleet, told: Pauses, other: Pauses) -> None:
            refuse(told, told_for)
            await asyncio.sleep(3.0)

            assert fleet.published == []
            assert not other.is_on

        await processes(check)

    run()


@virtual_time
async def test_a_pause_is_published_when_redis_is_available_again() -> None:
    async def check(fleet: Fleet, told: Pauses, other: Pauses) -> None:
        fleet.is_available = False
        refuse(told, 30.0)
        await asyncio.sleep(5.0)
        assert told.delay() > 0
        fleet.is_available = True

        await until(lambda: other.delay() > 0, within=3.0)

        assert other.delay() == pytest.approx(25.0, abs=3.0)

    await processes(check)


@virtual_time
async def test_a_quota_that_the_headers_say_is_used_up_pauses_all() -> None:
    async def check(fleet: Fleet, told: Pauses, other: Pauses) -> None:
        del fleet
        told.ask(10.0)

        assert told.delay() == pytest.approx(10.0)
        await until(lambda: other.delay() > 0, within=1.3)

    await processes(check)
