"""An open circuit: nothing is anybody's fault, probes come ever more slowly, and the first answer closes it."""

import time
from array import array

import pytest
from unit.evidence import (
    BROKEN,
    GONE,
    LONG,
    REFUSED,
    THROTTLED,
    UNAUTHORIZED,
    Api,
    Hand,
    answering,
    circuit,
    classifying,
    drop,
    fault_of,
    gauge_of,
    knowing_an_order,
    nothing_stored,
    opened,
)

from ingest.domain.errors import Fault, ThrottledFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.flow.circuit.breaker import CircuitBreaker


async def send_canary(watched: CircuitBreaker) -> None:
    """Send the next canary request."""
    canary = await watched.next_canary()
    assert canary is not None
    await watched.request_canary(canary)


# -- while it is open, and afterwards ---------------------------------------------------------------------------


async def test_while_it_is_open_no_failure_is_an_orders() -> None:
    watched = circuit()
    await opened(watched)

    for fault in (BROKEN, REFUSED, UNAUTHORIZED, ThrottledFault("HTTP 429", 1.0)):
        assert await fault_of(await classifying(watched, "another", fault, time.monotonic()), within=1) == "API"


async def test_the_first_valid_order_closes_it() -> None:
    cells, unproven = array("d", [0.0]), array("d", [0.0])
    watched = CircuitBreaker(Api().ask, gauge_of(cells), gauge_of(unproven), nothing_stored, 100, window=LONG)
    await opened(watched)

    watched.record_success(FetchRequest("good"), time.monotonic())

    assert not watched.is_open
    assert watched.closed.is_set()
    assert cells[0] == 0.0


async def test_what_was_asked_during_the_outage_and_fails_after_it_is_a_victim_of_it() -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    await opened(watched)
    hand.at += 1
    during = hand.at
    hand.at += 1
    watched.record_success(FetchRequest("good"), hand.at)
    hand.at += 1

    late = await classifying(watched, "late", BROKEN, during)

    assert await fault_of(late, within=1) == "API"
    assert not watched.is_open


async def test_after_an_outage_it_takes_as_many_failures_again() -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    await opened(watched)
    hand.at += 1
    watched.record_success(FetchRequest("good"), hand.at)
    hand.at += 1

    failing = [await classifying(watched, f"order-{number}", BROKEN, hand.at) for number in range(9)]

    assert not watched.is_open
    assert not any(task.done() for task in failing)
    await drop(*failing)


@pytest.mark.parametrize(("fault", "is_open"), [(None, False), (GONE, True), (BROKEN, True), (UNAUTHORIZED, True)])
async def test_a_probe_requests_a_known_order_and_only_that_order_closes_it(
    fault: Fault | None, *, is_open: bool
) -> None:
    hand, api = Hand(), answering(fault)
    watched = circuit(api, clock=hand)
    watched.record_success(FetchRequest("had"), hand.at)
    api.fault, hand.at = BROKEN, hand.at + 1
    for number in range(10):
        await classifying(watched, f"order-{number}", BROKEN, hand.at)
    assert watched.is_open
    api.fault, hand.at = fault, hand.at + 1

    await send_canary(watched)

    assert watched.is_open == is_open
    assert api.asked == ["had", "had"]


async def test_a_probe_that_is_told_to_wait_makes_the_next_one_wait() -> None:
    api = answering(BROKEN)
    watched, hand = knowing_an_order(api)
    for number in range(10):
        await classifying(watched, f"order-{number}", BROKEN, hand.at)
    api.fault = ThrottledFault("HTTP 503 with Retry-After", 20.0)

    await send_canary(watched)

    assert watched.is_open
    assert watched.pauses.next() == 20.0


async def test_an_api_that_asked_to_wait_before_other_requests_failed_is_not_probed_until_then() -> None:
    hand = Hand()
    watched = circuit(answering(REFUSED), clock=hand)
    await throttle(watched, 1, hand, 20.0)
    hand.at += 5

    await opened(watched)

    assert watched.pauses.next() == 15.0
    watched.record_success(FetchRequest("good"), hand.at)
    hand.at += 1
    await opened(watched)
    assert watched.pauses.next() == 0.5, "an answer ends what was asked for before"


# -- being throttled --------------------------------------------------------------------------------------------


async def throttle(watched: CircuitBreaker, count: int, hand: Hand, after: float | None = None) -> list[str]:
    """So many orders are told that it is too much."""
    fault = ThrottledFault("HTTP 429", after)
    tasks = [await classifying(watched, f"throttled-{number}", fault, hand.at) for number in range(count)]
    assert all(task.done() for task in tasks), "nobody waits for a verdict"
    return [await fault_of(task) for task in tasks]


async def test_a_throttled_order_is_never_waited_for() -> None:
    hand = Hand()
    watched = circuit(clock=hand, window=1.0)

    assert set(await throttle(watched, 100, hand)) == {"order"}

    assert not watched.is_open


async def test_throttling_opens_it_when_nothing_else_is_answered_for_a_second() -> None:
    hand = Hand()
    watched = circuit(clock=hand, window=1.0)
    await throttle(watched, 100, hand)

    hand.at += 0.9
    assert set(await throttle(watched, 10, hand)) == {"order"}
    hand.at += 0.2
    assert "API" in await throttle(watched, 10, hand)

    assert watched.is_open
    assert watched.is_throttled


async def test_what_was_refused_long_ago_is_no_reason_to_open_it() -> None:
    hand = Hand()
    watched = circuit(clock=hand, window=1.0)
    await throttle(watched, 100, hand)

    hand.at += 3600.0

    assert set(await throttle(watched, 100, hand)) == {"order"}
    assert not watched.is_open


async def test_an_api_that_refuses_even_what_it_gave_before_is_left_alone_for_as_long_as_it_asks_for() -> None:
    api = answering(THROTTLED)
    watched, hand = knowing_an_order(api)

    failing = [await classifying(watched, f"order-{number}", BROKEN, hand.at) for number in range(10)]

    assert {await fault_of(task, within=1) for task in failing} == {"API"}
    assert watched.pauses.next() == THROTTLED.after


async def test_throttling_with_answers_in_between_never_opens_it() -> None:
    hand = Hand()
    watched = circuit(clock=hand, window=1.0)

    for _ in range(100):
        hand.at += 0.1
        assert set(await throttle(watched, 15, hand)) == {"order"}
        hand.at += 0.1
        watched.record_success(FetchRequest("good"), hand.at - 0.05)

    assert not watched.is_open


# -- the pauses between probes ----------------------------------------------------------------------------------


async def test_pauses_grow_from_half_a_second_to_four_and_no_further() -> None:
    watched = circuit()
    await opened(watched)

    pauses = [watched.pauses.next() for _ in range(1_000)]

    assert pauses[0] == 0.5
    assert pauses[:7] == sorted(set(pauses[:7]))
    assert set(pauses[6:]) == {4.0}


async def test_pauses_differ_by_chance_but_not_by_much() -> None:
    watched = circuit(high=False)
    await opened(watched)

    pauses = [watched.pauses.next() for _ in range(100)]

    assert (pauses[0], pauses[-1]) == (0.375, 3.0)


async def test_pauses_are_short_again_in_the_next_outage() -> None:
    hand = Hand()
    watched = circuit(answering(REFUSED), clock=hand)
    await opened(watched)
    for _ in range(20):
        watched.pauses.next()
    hand.at += 1
    watched.record_success(FetchRequest("good"), hand.at)
    hand.at += 1

    await opened(watched)

    assert watched.pauses.next() == 0.5


@pytest.mark.parametrize(("told", "pause"), [(7.0, 7.0), (3600.0, 60.0), (0.0, 0.5), (None, 0.5)])
async def test_the_first_pause_is_as_long_as_the_api_has_asked_for_within_reason(
    told: float | None, pause: float
) -> None:
    hand = Hand()
    watched = circuit(clock=hand, window=1.0)
    await throttle(watched, 20, hand, told)
    hand.at += 1.5
    await throttle(watched, 1, hand, told)
    assert watched.is_open

    assert watched.pauses.next() == pause
    hand.at += pause
    assert watched.pauses.next() < 1, "it was asked for once"
