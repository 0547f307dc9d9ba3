"""The scheduler: how long the worker waits before it reads, and for how many free slots."""

import asyncio
from collections.abc import Callable

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
from ingest.flow.deliver.gate import Gate
from ingest.flow.deliver.scheduler import Scheduler, Turn
from ingest.flow.followed_controls import SourceControls
from ingest.flow.held import Held
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.flow.shares import Share, Shares
from ingest.flow.shutdown import Shutdown


async def no_request(request: FetchRequest) -> None:
    raise AssertionError(request)


class Process:
    """A scheduler with its dependencies."""

    def __init__(
        self,
        requests: int,
        *,
        most: int = 1_000,
        per_request: int = 1,
        share: Share | None = None,
        fitting: Callable[[], int | None] = lambda: None,
    ) -> None:
        share = share or Shares(most).add()
        self.held = Held(clock=now)
        self.pauses = Pauses(clock=now, draw=lambda low, _: low)
        self.pace = Pace(requests, gauge(), self.pauses, per_request=per_request, clock=now)
        self.circuit = CircuitBreaker(no_request, gauge(), gauge(), nothing_stored, requests, clock=now)
        gate = Gate(self.circuit, self.pace, SourceControls())
        self.scheduler = Scheduler(self.held, self.pace, gate, gauge(), most, share, fitting, clock=now)
        self.shutdown = Shutdown(1.0)
        self._number = 0

    def take(self, seconds: float = 3_600.0) -> "asyncio.Task[None]":
        return self.scheduler.start(self.next_delivery(), asyncio.sleep(seconds))

    def next_delivery(self) -> Delivery:
        self._number += 1
        return Delivery(EntryRef("stream", f"{self._number}-0"), "a", 1.0, 1, 1, None, {})

    async def wait(self, *, backlog: bool = False) -> int:
        return await self.scheduler.wait(self.shutdown, backlog=backlog)

    async def end(self) -> None:
        for task in list(self.scheduler.tasks):
            task.cancel()
        await some_turns()


@virtual_time
async def test_a_delivery_is_held_and_takes_a_slot_while_its_task_runs() -> None:
    process = Process(10)
    task = process.take(1.0)
    before = now()

    assert (await process.wait(), now(), len(process.held)) == (9, before, 1)
    await task
    await some_turns()
    assert (await process.wait(), len(process.held)) == (10, 1), "held until it is removed"


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

    process.pace.record_throttle(0.0, now())
    process.pauses.resume()

    assert await process.wait() == 100


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
async def test_when_the_limit_grows_its_slots_are_used_although_no_task_has_ended() -> None:
    process = Process(80)
    process.pace.record_throttle(0.0, now())
    process.pauses.resume()
    for _ in range(4):
        process.take()
    waiting = asyncio.create_task(process.wait())
    await some_turns()
    is_early = waiting.done()

    process.pace.record_success()

    assert (is_early, await waiting) == (False, 1)
    await process.end()


class Turns(Process):
    """Deliveries that are read ahead, and those that have begun, in order."""

    def __init__(self) -> None:
        super().__init__(80)
        self.begun: list[str] = []

    async def read_ahead(self) -> int:
        """Fill all slots twice with deliveries of 100 ms, then read as many as it may with a backlog, and return how many wait."""
        for _ in range(2):
            for _ in range(await self.wait()):
                self.take(0.1)
            await asyncio.sleep(0.101)
        for _ in range(await self.wait(backlog=True)):
            self.read_one()
        await some_turns()
        return len(self.scheduler.tasks) - len(self.begun)

    def read_one(self) -> None:
        delivery = self.next_delivery()
        self.scheduler.start_in_turn([delivery], self._process)

    async def _process(self, delivery: Delivery, turn: Turn) -> None:
        if turn is not None:
            await turn
        self.begun.append(delivery.entry.id)
        await asyncio.sleep(1.0)


@virtual_time
async def test_with_a_backlog_a_few_are_read_ahead_and_begin_in_order_when_there_are_slots() -> None:
    turns = Turns()
    waiting = await turns.read_ahead()
    before = len(turns.begun)
    read = [delivery.entry for delivery in turns.held.deliveries()][-before - waiting :]

    turns.held.lose([read[before]])
    await asyncio.sleep(1.0)
    await some_turns()

    assert (waiting, before) == (20, 80)
    assert turns.begun == [entry.id for entry in read if entry != read[before]]
    await turns.end()


@virtual_time
async def test_when_the_limit_is_cut_no_more_are_read_ahead_than_a_quarter_of_it() -> None:
    turns = Turns()
    for _ in range(2):
        for _ in range(await turns.wait()):
            turns.take(0.1)
        await asyncio.sleep(0.101)

    turns.pace.record_throttle(0.0, now())
    turns.pauses.resume()

    assert turns.pace.requests == 4
    assert await turns.wait(backlog=True) == 4 + 1
    await turns.end()


@virtual_time
async def test_when_others_end_slowly_none_is_read_ahead() -> None:
    process = Process(80)
    for _ in range(3):
        for _ in range(await process.wait(backlog=True)):
            process.take(30.0)
        await asyncio.sleep(30.001)
    for _ in range(80):
        process.take()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60.0):
            await process.wait(backlog=True)
    await process.end()


class Orders(Process):
    """Orders that arrive and end on request of the test, and a reader that takes all that it may."""

    def __init__(self) -> None:
        super().__init__(32)
        self.unread = 0
        self.running: list[tuple[Delivery, asyncio.Event]] = []
        self._come = asyncio.Event()

    async def keep_reading(self) -> None:
        while True:
            while not self.unread:
                self._come.clear()
                await self._come.wait()
            taken = min(self.unread, await self.wait(backlog=True))
            self.unread -= taken
            for _ in range(taken):
                delivery = self.next_delivery()
                self.scheduler.start_in_turn([delivery], self._process)

    def do(self, step: str, count: int) -> None:
        match step:
            case "come":
                self.unread += count
                self._come.set()
            case "end":
                for _, end in self.running[:count]:
                    end.set()
            case "lose":
                self.held.lose([delivery.entry for delivery in self.held.deliveries()[-count:]])
            case "throttle":
                self.pace.record_throttle(0.0, now())
                self.pauses.resume()
            case "answer":
                for _ in range(count):
                    self.pace.record_success()
                self.do("end", 1)

    async def _process(self, delivery: Delivery, turn: Turn) -> None:
        if turn is not None:
            await turn
        run = delivery, asyncio.Event()
        self.running.append(run)
        try:
            await run[1].wait()
            self.held.remove(delivery)
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
            waiting = len(orders.scheduler.tasks) - len(orders.running)
            assert len(orders.running) >= orders.pace.requests or not (waiting or orders.unread), (step, count)
            assert len(orders.running) <= 32
            assert waiting <= 8
        while orders.running:
            orders.do("end", 1_000)
            await asyncio.sleep(0.01)
        reading.cancel()

        assert (orders.unread, len(orders.held)) == (0, 0)
        await orders.end()

    run()


@virtual_time
async def test_a_request_to_stop_ends_the_wait() -> None:
    process = Process(1)
    process.take()
    waiting = asyncio.create_task(process.wait())
    await some_turns()

    process.shutdown.request("test")
    process.scheduler.wake()

    assert await waiting == 0
    await process.end()


@virtual_time
async def test_while_the_circuit_is_open_nothing_is_read() -> None:
    process = Process(1)
    process.take()
    waiting = asyncio.create_task(process.wait())
    await some_turns()

    fault = TransientFault("connection refused", reached=False)
    await process.circuit.classify(Exchange((FetchRequest("a"),), now()), fault)
    process.scheduler.wake()

    assert await waiting == 0
    await process.end()
    assert await process.wait() == 0, "although there is a slot"


@virtual_time
async def test_while_the_api_asks_for_a_pause_nothing_is_read() -> None:
    process = Process(5)
    process.pace.record_throttle(30.0, now())
    before = now()

    waits = [await process.wait(), await process.wait()]

    assert waits[0] == 0
    assert waits[1] > 0
    assert now() - before >= 30


@virtual_time
async def test_slots_are_limited_by_the_memory_for_documents() -> None:
    fitting: list[int | None] = [None]
    process = Process(10, fitting=lambda: fitting[-1])
    free = [await process.wait()]

    for more in (4, 1):
        fitting.append(more)
        free.append(await process.wait())
    await process.end()

    assert free == [10, 4, 1]
