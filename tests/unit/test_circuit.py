"""The circuit tells an outage of the external API from the fault of one order, by what else is answered."""

import asyncio
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ingest.domain.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault
from ingest.flow.circuit import ApiAway, Circuit
from ingest.telemetry.board import Gauge

BROKEN = TransientFault("HTTP 500")
REFUSED = TransientFault("connection refused", reached=False)
UNAUTHORIZED = CredentialFault("HTTP 401")
LONG = 3600.0  # a doubt that no test waits for


@dataclass
class Hand:
    """A clock whose hand the test moves, in seconds."""

    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Api:
    """An external API that answers every order alike, and as soon as it is let."""

    fault: Fault | None = None
    lets: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    async def ask(self, order_id: str) -> object:
        self.asked.append(order_id)
        await self.lets.wait()
        if self.fault is not None:
            raise self.fault
        return order_id


def gauge_of(cells: "array[float]") -> Gauge:
    return Gauge(memoryview(cells), 0)


def circuit(
    concurrency: int = 100,
    *,
    api: Api | None = None,
    doubt: float = LONG,
    clock: Callable[[], float] = time.monotonic,
    high: bool = True,
) -> Circuit:
    return Circuit(
        (api or Api()).ask,
        gauge_of(array("d", [0.0])),
        concurrency,
        doubt=doubt,
        clock=clock,
        draw=lambda least, most: most if high else least,
    )


async def turns() -> None:
    """Let tasks go on as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def judging(circuit: Circuit, order_id: str, fault: Fault, asked_at: float) -> "asyncio.Task[None]":
    """A judgement that has begun; done, if it needs no waiting."""
    task = asyncio.create_task(circuit.judge(order_id, fault, asked_at))
    await turns()
    return task


async def verdict(task: "asyncio.Task[None]", within: float = 10.0) -> str:
    """Who is to blame."""
    try:
        async with asyncio.timeout(within):
            await task
    except ApiAway:
        return "API"
    return "order"


async def opened(watched: Circuit, fault: Fault = REFUSED) -> None:
    """Let it open."""
    now = watched._clock()
    for number in range(10):
        task = await judging(watched, f"order-{number}", fault, now)
    assert await verdict(task, within=1) == "API"
    assert watched.is_open


# -- evidence that comes by itself ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [BROKEN, REFUSED, UNAUTHORIZED])
async def test_an_order_that_fails_after_a_later_one_was_answered_is_judged_at_once(fault: Fault) -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    watched.gave("good", hand.at)

    failed = await judging(watched, "bad", fault, hand.at - 0.1)

    assert failed.done()
    assert await verdict(failed) == "order"


async def test_a_failure_waits_for_the_answer_to_a_later_request() -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    failed = await judging(watched, "bad", BROKEN, hand.at)

    watched.gave("earlier", hand.at - 1)
    await turns()
    assert not failed.done(), "a straggler from before an outage proves nothing"

    watched.gave("later", hand.at + 1)
    assert await verdict(failed, within=1) == "order"
    assert not watched.is_open


async def test_many_orders_of_which_half_fail_are_no_outage() -> None:
    hand = Hand()
    watched = circuit(clock=hand, api=Api())
    blamed = []

    for number in range(200):
        hand.at += 0.01
        if number % 2:
            blamed.append(await judging(watched, f"bad-{number}", BROKEN, hand.at))
        else:
            watched.gave(f"good-{number}", hand.at)
    watched.gave("last", hand.at)

    assert {await verdict(task, within=1) for task in blamed} == {"order"}
    assert not watched.is_open


# -- evidence that is made --------------------------------------------------------------------------------------


async def test_a_burst_of_bad_orders_is_not_an_outage_if_a_known_order_comes() -> None:
    api, hand = Api(), Hand()
    watched = circuit(api=api, clock=hand)
    watched.gave("known", hand.at)
    hand.at += 1
    failed = [await judging(watched, f"bad-{number}", BROKEN, hand.at) for number in range(30)]
    assert api.asked == ["known"], "asked once, whoever waits"
    assert not any(task.done() for task in failed)

    api.lets.set()

    assert {await verdict(task, within=1) for task in failed} == {"order"}
    assert not watched.is_open


async def test_a_burst_of_failures_is_an_outage_if_the_known_order_fails_too() -> None:
    api, hand = Api(fault=BROKEN), Hand()
    cells = array("d", [0.0])
    watched = Circuit(api.ask, gauge_of(cells), 100, doubt=LONG, clock=hand)
    was_told: list[bool] = []
    watched.on_open = lambda: was_told.append(watched.is_open)
    watched.gave("known", hand.at)
    hand.at += 1
    failed = [await judging(watched, f"order-{number}", BROKEN, hand.at) for number in range(30)]

    api.lets.set()

    assert {await verdict(task, within=1) for task in failed} == {"API"}
    assert was_told == [True]
    assert (cells[0], watched.closed.is_set()) == (1.0, False)


@pytest.mark.parametrize("answer", [PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"), ThrottledFault("HTTP 429")])
async def test_any_answer_to_the_known_order_shows_that_the_api_works(answer: Fault) -> None:
    api, hand = Api(fault=answer), Hand()
    watched = circuit(api=api, clock=hand, doubt=0.0)
    watched.gave("known", hand.at)
    hand.at += 1
    api.lets.set()

    assert await verdict(await judging(watched, "bad", BROKEN, hand.at), within=1) == "order"


async def test_a_few_failures_are_in_doubt_after_a_while() -> None:
    api = Api(fault=BROKEN)
    api.lets.set()
    watched = circuit(api=api, doubt=0.05)
    watched.gave("known", time.monotonic())

    failed = await judging(watched, "order", BROKEN, time.monotonic())

    assert not failed.done()
    assert await verdict(failed) == "API"


async def test_a_judge_that_is_cancelled_while_it_asks_leaves_the_asking_to_the_others() -> None:
    api, hand = Api(), Hand()
    watched = circuit(2, api=api, clock=hand, doubt=0.0)
    watched.gave("known", hand.at)
    hand.at += 1
    first = await judging(watched, "first", BROKEN, hand.at)
    second = await judging(watched, "second", BROKEN, hand.at)

    first.cancel()
    await turns()
    api.lets.set()

    assert await verdict(second, within=1) == "order"
    assert api.asked == ["known", "known"]


async def test_what_is_acquitted_while_the_known_order_hangs_need_not_wait_for_it() -> None:
    api, hand = Api(fault=BROKEN), Hand()
    watched = circuit(api=api, clock=hand, doubt=0.0)
    watched.gave("known", hand.at)
    hand.at += 1
    asking = await judging(watched, "first", BROKEN, hand.at)
    waiting = await judging(watched, "second", BROKEN, hand.at)

    watched.gave("another", hand.at)

    assert await verdict(waiting, within=1) == "order"
    api.lets.set()
    assert await verdict(asking, within=1) == "order"
    assert not watched.is_open


# -- without an order to ask for --------------------------------------------------------------------------------


async def test_one_order_that_fails_alone_with_an_answer_of_the_api_is_at_fault() -> None:
    watched = circuit(doubt=0.0)

    assert await verdict(await judging(watched, "bad", BROKEN, time.monotonic()), within=1) == "order"


async def test_the_same_order_in_hand_twice_is_one_order() -> None:
    watched = circuit(doubt=0.05)

    failed = [await judging(watched, "bad", BROKEN, time.monotonic()) for _ in range(2)]

    assert [await verdict(task) for task in failed] == ["order", "order"]


async def test_several_orders_that_fail_are_an_outage() -> None:
    watched = circuit(doubt=0.05)

    failed = [await judging(watched, f"order-{number}", BROKEN, time.monotonic()) for number in range(2)]

    assert [await verdict(task) for task in failed] == ["API", "API"]


@pytest.mark.parametrize("fault", [REFUSED, UNAUTHORIZED])
async def test_what_can_be_no_orders_fault_opens_it_though_it_met_one_alone(fault: Fault) -> None:
    watched = circuit(doubt=0.0)

    assert await verdict(await judging(watched, "order", fault, time.monotonic()), within=1) == "API"
    assert watched.is_open


@pytest.mark.parametrize(("concurrency", "orders"), [(1, 2), (4, 4), (10, 10), (500, 10)])
async def test_many_orders_that_fail_are_not_waited_for(concurrency: int, orders: int) -> None:
    watched = circuit(concurrency)

    failed = []
    for number in range(orders):
        assert not watched.is_open
        failed.append(await judging(watched, f"order-{number}", BROKEN, time.monotonic()))

    assert {await verdict(task, within=1) for task in failed} == {"API"}


# -- while it is open, and afterwards -----------------------------------------------------------------------------


async def test_while_it_is_open_no_failure_is_an_orders() -> None:
    watched = circuit()
    await opened(watched)

    for fault in (BROKEN, REFUSED, UNAUTHORIZED, ThrottledFault("HTTP 429", 1.0)):
        assert await verdict(await judging(watched, "another", fault, time.monotonic()), within=1) == "API"


async def test_the_first_answer_closes_it() -> None:
    cells = array("d", [0.0])
    watched = Circuit(Api().ask, gauge_of(cells), 100, doubt=LONG)
    await opened(watched)

    watched.answered(time.monotonic())

    assert not watched.is_open
    assert watched.closed.is_set()
    assert cells[0] == 0.0


async def test_a_probe_asks_for_the_known_order_and_its_answer_closes_it() -> None:
    api = Api(fault=BROKEN)
    api.lets.set()
    watched = circuit(api=api)
    assert not watched.has_an_order_to_ask_for
    watched.gave("known", 0.0)
    await opened(watched)

    await watched.probe()
    assert not watched.closed.is_set()
    api.fault = None
    await watched.probe()

    assert watched.closed.is_set()
    assert set(api.asked) == {"known"}


async def test_what_was_asked_during_the_outage_and_fails_after_it_is_a_victim_of_it() -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    await opened(watched)
    hand.at += 1
    during = hand.at
    hand.at += 1
    watched.answered(during)

    late = await judging(watched, "late", BROKEN, during)

    assert await verdict(late, within=1) == "API"
    assert not watched.is_open


# -- being throttled --------------------------------------------------------------------------------------------


async def throttle(watched: Circuit, count: int, hand: Hand, after: float | None = None) -> list[str]:
    """So many orders are told that it is too much."""
    fault = ThrottledFault("HTTP 429", after)
    return [
        await verdict(await judging(watched, f"throttled-{number}", fault, hand.at), within=1)
        for number in range(count)
    ]


async def test_a_throttled_order_is_never_waited_for() -> None:
    hand = Hand()
    watched = circuit(clock=hand, doubt=1.0)

    assert set(await throttle(watched, 100, hand)) == {"order"}

    assert not watched.is_open


async def test_throttling_opens_it_when_nothing_else_is_answered_for_a_second() -> None:
    hand = Hand()
    watched = circuit(clock=hand, doubt=1.0)
    await throttle(watched, 100, hand)

    hand.at += 0.9
    assert set(await throttle(watched, 10, hand)) == {"order"}
    hand.at += 0.2
    assert "API" in await throttle(watched, 10, hand)

    assert watched.is_open
    assert watched.is_throttled


async def test_throttling_with_answers_in_between_never_opens_it() -> None:
    hand = Hand()
    watched = circuit(clock=hand, doubt=1.0)

    for _ in range(100):
        hand.at += 0.1
        assert set(await throttle(watched, 5, hand)) == {"order"}
        hand.at += 0.1
        watched.answered(hand.at - 0.05)

    assert not watched.is_open


# -- the pauses between probes ----------------------------------------------------------------------------------


async def test_pauses_grow_from_half_a_second_to_four_and_no_further() -> None:
    watched = circuit()
    await opened(watched)

    pauses = [watched.pause() for _ in range(1_000)]

    assert pauses[0] == 0.5
    assert pauses[:7] == sorted(set(pauses[:7]))
    assert set(pauses[6:]) == {4.0}


async def test_pauses_differ_by_chance_but_not_by_much() -> None:
    watched = circuit(high=False)
    await opened(watched)

    pauses = [watched.pause() for _ in range(100)]

    assert pauses[0] == 0.375
    assert pauses[-1] == 3.0


async def test_pauses_are_short_again_in_the_next_outage() -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    await opened(watched)
    for _ in range(20):
        watched.pause()
    hand.at += 1
    watched.answered(hand.at)
    hand.at += 1

    await opened(watched)

    assert watched.pause() == 0.5


@pytest.mark.parametrize(("told", "pause"), [(7.0, 7.0), (3600.0, 60.0), (0.0, 0.5), (None, 0.5)])
async def test_the_first_pause_is_as_long_as_the_api_has_asked_for_within_reason(
    told: float | None, pause: float
) -> None:
    hand = Hand()
    watched = circuit(clock=hand, doubt=1.0)
    await throttle(watched, 20, hand, told)
    hand.at += 1.5
    await throttle(watched, 1, hand, told)
    assert watched.is_open

    assert watched.pause() == pause
    assert watched.pause() < 1, "it was asked for once"
