"""The circuit breaker distinguishes an outage of the external API from an order's own fault by other responses."""

import time
from array import array

import pytest
from unit.evidence import (
    BROKEN,
    GONE,
    LONG,
    REFUSED,
    SHORT,
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
    some_turns,
)

from ingest.domain.errors import Fault, NotSent, ThrottledFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.flow.circuit.breaker import CircuitBreaker

# -- evidence that comes by itself ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [BROKEN, REFUSED, UNAUTHORIZED])
async def test_an_order_that_fails_while_later_ones_are_answered_is_at_fault_at_once(fault: Fault) -> None:
    hand, api = Hand(), Api()
    watched = circuit(api, clock=hand)
    failing = await classifying(watched, "bad", fault, started_at=hand.at)
    assert not failing.done()

    watched.record_success(FetchRequest("good"), started_at=hand.at + 0.1)

    assert await fault_of(failing, within=1) == "order"
    assert not watched.is_open
    assert api.asked == []


async def test_an_order_that_fails_after_a_later_one_was_answered_is_not_in_question() -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    watched.record_success(FetchRequest("good"), started_at=hand.at)

    late = await classifying(watched, "slow", BROKEN, started_at=hand.at - 30)

    assert late.done()
    assert await fault_of(late) == "order"


async def test_an_answer_to_an_earlier_request_proves_nothing() -> None:
    hand = Hand()
    watched = circuit(clock=hand)
    failing = await classifying(watched, "bad", BROKEN, started_at=hand.at)

    watched.record_success(FetchRequest("good"), started_at=hand.at - 0.1)
    await some_turns()

    assert not failing.done()
    await drop(failing)


@pytest.mark.parametrize(
    ("fault", "began", "succeeded", "failed", "is_evidence"),
    [
        (BROKEN, 0.0, 11.0, 12.0, True),
        (BROKEN, -0.1, 11.0, 12.0, False),
        (BROKEN, 0.0, 11.0, 11.0 + LONG, True),
        (BROKEN, 0.0, 11.0, 11.1 + LONG, False),
        (BROKEN, 0.0, 11.1, 11.1 + LONG, True),
        (GONE, 12.0, 12.0, 12.0, True),
        (GONE, 11.9, 12.0, 12.0, False),
        (GONE, 12.0, 12.0, 12.1, False),
    ],
)
async def test_a_success_is_evidence_by_its_beginning_its_end_and_the_end_of_the_failed_request(
    fault: Fault, began: float, succeeded: float, failed: float, *, is_evidence: bool
) -> None:
    hand = Hand()
    watched, requested_at = circuit(clock=hand), hand.at
    hand.at = requested_at + succeeded
    watched.record_success(FetchRequest("good"), started_at=requested_at + began)
    hand.at = requested_at + failed

    failing = await classifying(watched, "bad", fault, started_at=requested_at)

    assert failing.done() == is_evidence
    await drop(failing)


@pytest.mark.parametrize(("began", "is_evidence"), [(9.9, False), (10.0, True), (10.1, True)])
async def test_a_response_waits_for_a_success_that_began_after_it(began: float, *, is_evidence: bool) -> None:
    hand = Hand()
    watched, requested_at = circuit(clock=hand), hand.at
    hand.at = requested_at + 10.0
    failing = await classifying(watched, "bad", GONE, started_at=requested_at)

    hand.at = requested_at + 11.0
    watched.record_success(FetchRequest("good"), started_at=requested_at + began)
    await some_turns()

    assert failing.done() == is_evidence
    await drop(failing)


async def test_every_second_order_failing_is_no_outage() -> None:
    hand, api = Hand(), Api()
    watched = circuit(api, clock=hand)
    failing = []

    for number in range(200):
        failing.append(await classifying(watched, f"order-{number}", BROKEN, hand.at))
        hand.at += 0.01
        watched.record_success(FetchRequest(f"good-{number}"), started_at=hand.at)

    assert {await fault_of(task, within=1) for task in failing} == {"order"}
    assert not watched.is_open
    assert api.asked == []


# -- evidence that is made --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "blamed"),
    [(None, "order"), (GONE, "API"), (BROKEN, "API"), (REFUSED, "API"), (UNAUTHORIZED, "API"), (THROTTLED, "API")],
)
@pytest.mark.parametrize("fault", [BROKEN, REFUSED, UNAUTHORIZED])
async def test_where_nothing_tells_an_order_that_the_api_has_had_is_asked_for(
    fault: Fault, answer: Fault | None, blamed: str
) -> None:
    api = answering(answer)
    watched = circuit(api, window=SHORT)
    watched.record_success(FetchRequest("had"), time.monotonic())
    began = time.monotonic()

    assert await fault_of(await classifying(watched, "bad", fault, began)) == blamed

    assert time.monotonic() - began >= SHORT
    assert api.asked == ["had"]
    assert watched.is_open == (blamed == "API")


@pytest.mark.parametrize(("concurrency", "orders"), [(100, 10), (10, 10), (4, 4), (1, 2)])
async def test_many_failures_together_are_evidence_at_once(concurrency: int, orders: int) -> None:
    hand, api = Hand(), answering(BROKEN)
    cells = array("d", [0.0])
    watched = CircuitBreaker(
        api.ask, gauge_of(cells), gauge_of(array("d", [0.0])), nothing_stored, concurrency, window=LONG, clock=hand
    )
    watched.record_success(FetchRequest("had"), hand.at)
    hand.at += 1
    waiting = [await classifying(watched, f"order-{number}", BROKEN, hand.at) for number in range(orders - 1)]
    assert not watched.is_open
    assert api.asked == []

    last = await classifying(watched, "last", BROKEN, hand.at)

    assert {await fault_of(task, within=1) for task in [*waiting, last]} == {"API"}, "who waited is woken"
    assert watched.is_open
    assert not watched.closed.is_set()
    assert not watched.is_throttled
    assert (cells[0], api.asked) == (1.0, ["had"])


async def test_many_orders_at_fault_are_all_acquitted_by_one_answer() -> None:
    api = answering()
    watched, hand = knowing_an_order(api)

    failing = [await classifying(watched, f"order-{number}", BROKEN, hand.at) for number in range(10)]

    assert {await fault_of(task, within=1) for task in failing} == {"order"}
    assert api.asked == ["had"]


async def test_an_order_that_fails_is_not_requested_as_evidence() -> None:
    api = answering(BROKEN)
    watched = circuit(api, window=SHORT)
    watched.record_success(FetchRequest("had"), time.monotonic())

    blamed = await fault_of(await classifying(watched, "had", BROKEN, time.monotonic()))

    assert (blamed, api.asked) == ("order", [])


async def test_evidence_that_is_not_requested_because_the_process_stops_blames_no_order() -> None:
    watched = circuit(answering(NotSent("the process stops")), window=SHORT)
    watched.record_success(FetchRequest("had"), time.monotonic())

    with pytest.raises(NotSent):
        await fault_of(await classifying(watched, "bad", BROKEN, time.monotonic()))

    assert not watched.is_open


async def test_one_question_at_a_time_is_enough() -> None:
    api = Api(BROKEN)
    watched, hand = knowing_an_order(api)

    failing = [await classifying(watched, f"order-{number}", BROKEN, hand.at) for number in range(50)]
    assert not any(task.done() for task in failing)
    api.open.set()

    assert {await fault_of(task, within=1) for task in failing} == {"API"}
    assert api.asked == ["had"]


async def test_an_answer_that_comes_while_it_asks_acquits_the_api_though_the_question_fails() -> None:
    api = Api(BROKEN)
    watched, hand = knowing_an_order(api)
    failing = [await classifying(watched, f"order-{number}", BROKEN, hand.at) for number in range(10)]
    assert api.asked == ["had"]

    hand.at += 1
    watched.record_success(FetchRequest("good"), started_at=hand.at)
    api.open.set()

    assert {await fault_of(task, within=1) for task in failing} == {"order"}
    assert not watched.is_open


async def test_who_asks_may_be_cancelled_and_another_asks_again() -> None:
    api = Api(BROKEN)
    watched, hand = knowing_an_order(api)
    failing = [await classifying(watched, f"order-{number}", BROKEN, hand.at) for number in range(11)]
    assert api.asked == ["had"]

    await drop(failing.pop(9))
    api.open.set()

    assert {await fault_of(task, within=1) for task in failing[9:]} == {"API"}
    assert watched.is_open


async def test_the_order_asked_for_is_the_last_that_was_given() -> None:
    api = answering()
    watched = circuit(api, window=SHORT)
    assert await watched.next_canary() is None
    for order_id in ("one", "another"):
        watched.record_success(FetchRequest(order_id), time.monotonic())
    assert await watched.next_canary() is not None

    await fault_of(await classifying(watched, "bad", BROKEN, time.monotonic()))

    assert api.asked == ["another"]


# -- before anything was given ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "orders", "blamed"),
    [
        (BROKEN, "a", "order"),
        (BROKEN, "ab", "API"),
        (BROKEN, "aaaa", "order"),
        (REFUSED, "a", "API"),
        (UNAUTHORIZED, "a", "API"),
    ],
)
async def test_before_anything_was_given_it_counts(fault: Fault, orders: str, blamed: str) -> None:
    api = Api()
    watched = circuit(api, window=SHORT)
    now = time.monotonic()

    failing = [await classifying(watched, order_id, fault, now) for order_id in orders]

    assert {await fault_of(task) for task in failing} == {blamed}
    assert watched.is_open == (blamed == "API")
    assert api.asked == []


@pytest.mark.parametrize(("orders", "blamed"), [("aaaa", ["order"] * 4), ("aab", ["order", "order", "API"])])
async def test_orders_that_fail_one_after_the_other_count_like_those_that_fail_together(
    orders: str, blamed: list[str]
) -> None:
    watched = circuit(concurrency=1, window=SHORT)

    verdicts = [await fault_of(await classifying(watched, order_id, BROKEN, time.monotonic())) for order_id in orders]

    assert verdicts == blamed
    assert watched.is_open == ("API" in blamed)


async def test_orders_that_fail_with_an_answer_between_them_are_each_at_fault() -> None:
    watched = circuit(answering(), window=SHORT)

    for order_id in "abc":
        assert await fault_of(await classifying(watched, order_id, BROKEN, time.monotonic())) == "order"
        watched.record_success(FetchRequest("good"), time.monotonic())

    assert not watched.is_open


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
    """This many requests are throttled."""
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
