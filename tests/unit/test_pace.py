"""The pace: orders that share requests wait for pauses, and their requests for each other as well."""

import pytest
from fakes.workers import gauge
from unit.evidence import Hand

from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses


class Quota:
    """A quota that lets two requests be sent soon."""

    def __init__(self) -> None:
        self.turned_away = 0

    def read_ahead(self) -> int:
        return 2

    def turn_away(self) -> None:
        self.turned_away += 1


def throttled(hand: Hand, per_request: int) -> Pace:
    """A pace at which single requests were too much, after the pause for that."""
    pace = Pace(1, gauge(), Pauses(clock=hand, draw=min), per_request=per_request, clock=hand)
    pace.record_throttle(1.0, hand.at)
    hand.at += 10
    pace.record_success()
    pace.record_throttle(1.0, hand.at)
    hand.at += 10
    return pace


def test_between_two_requests_is_a_pause_for_which_orders_that_share_them_do_not_wait() -> None:
    hand = Hand()
    pace = throttled(hand, 50)
    assert pace.pauses.interval > 0
    assert (pace.requests, pace.orders()) == (1, 50)

    for _ in range(50):
        assert pace.delay() <= 0
        pace.record_order()
    assert pace.request_delay() <= 0, "an order begins no request"
    pace.record_request()

    assert pace.request_delay() == pytest.approx(0.9 * pace.pauses.interval)
    assert pace.delay() <= 0


def test_an_order_with_a_request_of_its_own_waits_for_the_one_before() -> None:
    hand = Hand()
    pace = throttled(hand, 1)

    pace.record_order()

    assert pace.delay() == pytest.approx(0.9 * pace.pauses.interval)


def test_orders_and_requests_wait_until_a_pause_for_all_is_over() -> None:
    hand = Hand()
    pace = throttled(hand, 50)

    pace.pauses.ask(5.0)

    assert pace.is_paused()
    assert pace.delay() == pytest.approx(5.0)
    assert pace.request_delay() == pytest.approx(5.0)
    hand.at += 5.1
    assert not pace.is_paused()


def test_without_throttling_nothing_waits() -> None:
    pace = Pace(4, gauge(), Pauses(clock=Hand()))

    pace.record_request()

    assert (pace.delay(), pace.request_delay(), pace.requests) == (0, 0, 4)
    assert not pace.is_paused()


def test_a_quota_bounds_the_orders_in_flight_and_sends_nothing_more_once_the_api_asks_to_wait() -> None:
    hand, quota = Hand(), Quota()
    pace = Pace(10, gauge(), Pauses(clock=hand), quota, per_request=5, clock=hand)

    orders = pace.orders()
    pace.record_throttle(1.0, hand.at)

    assert (orders, quota.turned_away) == (10, 1)
