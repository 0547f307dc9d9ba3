"""Slots: how long the worker waits before it reads, and for how many."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes.virtual_time import now, some_turns, virtual_time
from fakes.workers import gauge
from hypothesis import given
from hypothesis import strategies as st
from unit.evidence import nothing_stored

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.errors import TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.deliver.slots import Slots
from ingest.flow.held import InFlight
from ingest.flow.pace.limit import ConcurrencyLimit
from ingest.flow.pace.pauses import Pacing
from ingest.flow.shutdown import Shutdown


async def no_request(request: FetchRequest) -> None:
    raise AssertionError(request)


class Process:
    """Slots, with what they look at."""

    def __init__(
        self, count: int, *, most: int = 0, per_request: int = 1, read_ahead: Callable[[], int] | None = None
    ) -> None:
        self.in_flight = InFlight(gauge(), clock=now)
        self.pacing = Pacing(clock=now, draw=lambda low, _: low)
        self.limit = ConcurrencyLimit(count, gauge(), self.pacing, clock=now)
        self.circuit = CircuitBreaker(no_request, gauge(), gauge(), nothing_stored, count, clock=now)
        self.slots = Slots(
            self.in_flight, self.limit, self.pacing, self.circuit, most=most, per_request=per_request,
            read_ahead=read_ahead,
        )  # fmt: skip
        self.shutdown = Shutdown(1.0)
        self._number = 0

    def start(self, count: int, seconds: float) -> None:
        """Start as many deliveries as the worker does that has read them: those without a slot wait."""
        for _ in range(count):
            self.in_flight.start([self._next()], lambda _: asyncio.sleep(seconds))

    async def with_a_backlog(self, rounds: int, seconds: float) -> int:
        """Work on a backlog of orders that take this long; returns how many deliveries were held at most."""
        held = 0
        for _ in range(rounds):
            count = await self.wait(backlog=True)
            self.start(count, seconds)
            held = max(held, len(self.in_flight.tasks) + self.in_flight.waiting)
        return held

    def take(self, seconds: float = 3_600.0) -> "asyncio.Task[None]":
        return self.in_flight.start_apart(self._next(), asyncio.sleep(seconds))

    def _next(self) -> Delivery:
        self._number += 1
        return Delivery(EntryRef("stream", f"{self._number}-0"), "a", 1.0, 1, 1, None, {})

    async def wait(self, *, backlog: bool = False) -> int:
        return await self.slots.wait(self.shutdown, backlog=backlog)

    async def end(self) -> None:
        for task in list(self.in_flight.tasks):
            task.cancel()
        await some_turns()


@virtual_time
async def test_free_slots_are_told_at_once() -> None:
    process = Process(10)
    process.take()
    before = now()

    assert await process.wait() == 9
    assert now() == before
    await process.end()


@virtual_time
async def test_while_all_are_taken_it_waits_for_the_first_that_is_free() -> None:
    process = Process(2)
    process.take(5.0)
    process.take()
    before = now()

    assert await process.wait() == 1
    assert now() - before == 5.0
    await process.end()


@virtual_time
async def test_a_request_for_several_orders_has_as_many_slots_and_all_of_them_as_many_as_set() -> None:
    process = Process(3, most=120, per_request=50)
    assert await process.wait() == 120

    process.limit.record_throttle(0.0, now())
    await process.slots.wait(process.shutdown, backlog=False)

    assert process.limit.value == 2
    assert process.slots._count() == 100


@virtual_time
async def test_with_a_backlog_it_waits_for_several_slots_that_become_free_within_a_moment() -> None:
    process = Process(80)
    for number in range(80):
        process.take(0.0001 * (number + 1))

    assert await process.wait(backlog=True) == 10
    await process.end()


@virtual_time
async def test_with_a_backlog_it_waits_a_moment_for_the_slots_of_a_whole_request() -> None:
    process = Process(2, most=10, per_request=5)
    for seconds in (1.0, *([1.003] * 5), 3.0, 3.0, 3.0, 3.0):
        process.take(seconds)
    before = now()

    assert await process.wait(backlog=True) == 6
    assert round(now() - before, 4) == 1.003
    await process.end()


@virtual_time
async def test_with_a_backlog_a_single_slot_is_used_after_a_moment() -> None:
    process = Process(640)
    for _ in range(639):
        process.take()
    before = now()

    assert await process.wait(backlog=True) == 1
    assert 0 < now() - before < 0.01
    await process.end()


@virtual_time
async def test_with_a_backlog_it_prefetches_what_begins_within_a_moment() -> None:
    process = Process(80)
    held = await process.with_a_backlog(rounds=10, seconds=0.1)
    while not process.in_flight.waiting:
        process.start(await process.wait(backlog=True), 0.1)
    is_prefetching = process.slots.is_prefetching
    before = len(process.in_flight.tasks), process.in_flight.waiting
    free = await process.wait(backlog=False)

    assert held == 80 + 16, "800 a second: sixteen begin within a moment"
    assert is_prefetching
    assert before == (80, 16)
    assert (len(process.in_flight.tasks), process.in_flight.waiting, free) == (16, 0, 64), "without a slot none is read"
    await process.end()


@virtual_time
async def test_however_fast_orders_are_no_more_is_prefetched_than_half_of_the_slots() -> None:
    process = Process(80)

    assert await process.with_a_backlog(rounds=30, seconds=0.01) == 80 + 40
    await process.end()


@virtual_time
async def test_prefetching_begins_when_the_first_orders_of_a_backlog_have_ended() -> None:
    process = Process(80)
    await process.wait(backlog=True)
    began = now()
    for number in range(80):
        process.start(1, 0.1 + 0.001 * number)
    while not process.in_flight.waiting:
        process.start(await process.wait(backlog=True), 0.15)

    assert now() - began < 0.12, "before each slot has been free once"
    assert process.in_flight.waiting == 15, "80 in 0.1 s: fifteen begin within a moment"
    await process.end()


@virtual_time
async def test_orders_that_ended_before_others_of_a_slow_api_let_little_be_prefetched() -> None:
    process = Process(80)
    await process.wait(backlog=True)
    process.start(10, 0.1)
    process.start(70, 5.0)
    held = 0
    for _ in range(12):
        process.start(await process.wait(backlog=True), 5.0)
        held = max(held, len(process.in_flight.tasks) + process.in_flight.waiting)

    assert held <= 80 + 16
    assert not process.slots.is_prefetching
    await process.end()


@virtual_time
async def test_with_few_slots_nothing_is_prefetched_and_a_read_may_wait_for_new_orders() -> None:
    process = Process(4)

    assert await process.with_a_backlog(rounds=20, seconds=0.1) == 4
    assert not process.slots.is_prefetching
    await process.end()


@virtual_time
async def test_with_a_backlog_and_a_slow_api_little_is_prefetched() -> None:
    slow, slower = Process(80), Process(80)

    assert await slow.with_a_backlog(rounds=20, seconds=0.3) == 80 + 5, "267 a second: five begin within a moment"
    assert await slower.with_a_backlog(rounds=20, seconds=1.0) == 80
    await slow.end()
    await slower.end()


@virtual_time
async def test_with_a_slow_api_nothing_is_prefetched_in_a_burst_which_would_wait_for_the_next_one() -> None:
    process, held = Process(80), 0
    for _ in range(2_000):
        process.start(min(1, await process.wait(backlog=True)), 2.0)
        held = max(held, len(process.in_flight.tasks) + process.in_flight.waiting)
        await asyncio.sleep(0.002)  # what an order costs; all of them together, a burst of 0.16 s

    assert held == 80
    await process.end()


@virtual_time
async def test_when_the_api_becomes_slow_nothing_is_prefetched_any_more() -> None:
    process = Process(80)
    assert await process.with_a_backlog(rounds=10, seconds=0.1) == 80 + 16
    await process.with_a_backlog(rounds=10, seconds=2.0)

    assert await process.with_a_backlog(rounds=1, seconds=2.0) == 80
    await process.end()


@pytest.mark.parametrize(
    "limits", [{"most": 80, "per_request": 2}, {"read_ahead": lambda: 1_000}], ids=["bulk", "quota"]
)
def test_where_a_slot_is_not_all_that_an_order_waits_for_nothing_is_prefetched(limits: dict[str, Any]) -> None:
    @virtual_time
    async def run() -> None:
        process = Process(80, **limits)

        assert await process.with_a_backlog(rounds=10, seconds=0.1) == 80
        await process.end()

    run()


@virtual_time
async def test_when_the_limit_falls_what_was_prefetched_begins_one_after_the_other_and_the_wait_goes_on() -> None:
    process = Process(80)
    await process.with_a_backlog(rounds=10, seconds=0.1)
    waiting = asyncio.create_task(process.with_a_backlog(rounds=3, seconds=0.1))
    await some_turns()

    process.limit.record_throttle(0.0, now())
    process.pacing.resume()
    most = 0
    while not waiting.done():
        await asyncio.sleep(0.05)
        if not waiting.done() and len(process.in_flight.tasks) <= process.limit.value:
            most = max(most, len(process.in_flight.tasks))

    assert process.limit.value == most == 4
    await process.end()


@virtual_time
async def test_when_the_limit_grows_its_slots_are_used_although_no_task_has_ended() -> None:
    process = Process(80)
    process.limit.record_throttle(0.0, now())
    process.pacing.resume()
    process.start(5, 3_600.0)
    waiting = asyncio.create_task(process.wait())
    await some_turns()
    before = len(process.in_flight.tasks), process.in_flight.waiting, waiting.done()

    process.limit.record_success()
    grown = len(process.in_flight.tasks), process.in_flight.waiting
    await some_turns()
    is_read_for = waiting.done()
    process.limit.record_success()

    assert (before, grown, is_read_for) == ((4, 1, False), (5, 0), False)
    assert await waiting == 1
    await process.end()


class Orders(Process):
    """Orders that come and end when they are told to, and a reader that takes as many as it may."""

    def __init__(self) -> None:
        super().__init__(32)
        self.unread = 0
        self.running: list[tuple[Delivery, asyncio.Event]] = []
        self.begun = list[EntryRef]()
        self.read: list[Delivery] = []
        self.lost = set[EntryRef]()
        self._come = asyncio.Event()

    async def keep_reading(self) -> None:
        while True:
            while not self.unread:
                self._come.clear()
                await self._come.wait()
            taken = min(self.unread, await self.wait(backlog=True))
            self.unread -= taken
            for _ in range(taken):
                self.read.append(delivery := self._next())
                self.in_flight.start([delivery], self._process)

    def do(self, step: str, count: int) -> None:
        match step:
            case "come":
                self.unread += count
                self._come.set()
            case "end":
                for _, end in self.running[:count]:
                    end.set()
            case "lose":
                lost = [delivery.entry for delivery in self.in_flight.held()[-count:]]
                self.lost.update(lost)
                self.in_flight.lose(lost)
            case "throttle":
                self.limit.record_throttle(0.0, now())
                self.pacing.resume()
            case "answer":
                for _ in range(count):
                    self.limit.record_success()

    async def _process(self, delivery: Delivery) -> None:
        self.begun.append(delivery.entry)
        run = delivery, asyncio.Event()
        self.running.append(run)
        try:
            await run[1].wait()
            self.in_flight.remove(delivery)
        finally:
            self.running.remove(run)


@given(
    st.lists(st.tuples(st.sampled_from(["come", "end", "lose", "throttle", "answer"]), st.integers(1, 40)), max_size=60)
)
def test_when_nothing_more_happens_nothing_waits_while_a_slot_is_free(steps: list[tuple[str, int]]) -> None:
    @virtual_time
    async def run() -> None:
        orders = Orders()
        reading = asyncio.create_task(orders.keep_reading())
        for step, count in steps:
            orders.do(step, count)
            await asyncio.sleep(0.01)  # longer than it waits for several slots
            is_full = len(orders.in_flight.tasks) >= orders.limit.value
            assert is_full or not (orders.in_flight.waiting or orders.unread), (step, count)
        while orders.running:
            orders.do("end", 1_000)
            await asyncio.sleep(0.01)
        reading.cancel()

        assert orders.begun == [each.entry for each in orders.read if each.entry in orders.begun], "in their turn"
        assert {each.entry for each in orders.read} - orders.lost <= set(orders.begun)
        assert (orders.unread, len(orders.in_flight)) == (0, 0)
        await orders.end()

    run()


@virtual_time
async def test_a_request_to_stop_ends_the_wait() -> None:
    process = Process(1)
    process.take()
    waiting = asyncio.create_task(process.wait())
    await some_turns()

    process.shutdown.request("test")
    process.slots.wake()

    assert await waiting == 0
    await process.end()


@virtual_time
async def test_when_the_circuit_opens_the_wait_ends_and_nothing_is_read() -> None:
    process = Process(1)
    process.take()
    waiting = asyncio.create_task(process.wait())
    await some_turns()

    fault = TransientFault("connection refused", reached=False)
    await process.circuit.classify(Exchange((FetchRequest("a"),), now()), fault)
    opened_at = now()

    assert await waiting == 0
    assert now() == opened_at
    await process.end()
    assert await process.wait() == 0, "although there is a slot"


@virtual_time
async def test_while_the_api_asks_for_a_pause_nothing_is_read() -> None:
    process = Process(5)
    process.limit.record_throttle(30.0, now())
    before = now()

    waits = [await process.wait(), await process.wait()]

    assert waits[0] == 0
    assert waits[1] > 0
    assert now() - before >= 30
