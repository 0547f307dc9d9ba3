"""The pace of requests that several orders share: orders wait for pauses, requests for each other as well."""

import pytest
from fakes.workers import gauge
from unit.evidence import Hand

from ingest.flow.pace.limit import ConcurrencyLimit
from ingest.flow.pace.request_pace import RequestPace, SharedPacing


def throttled(hand: Hand) -> tuple[SharedPacing, RequestPace]:
    """A pace at which single requests were too much, after the pause for that."""
    pacing = SharedPacing(clock=hand, draw=min)
    limit = ConcurrencyLimit(1, gauge(), pacing, clock=hand)
    limit.record_throttle(1.0, hand.at)
    hand.at += 10
    limit.record_success()
    limit.record_throttle(1.0, hand.at)
    hand.at += 10
    return pacing, RequestPace(limit, pacing)


def test_between_two_requests_is_a_pause_for_which_orders_do_not_wait() -> None:
    hand = Hand()
    pacing, pace = throttled(hand)
    assert pacing.interval > 0
    assert pace.most == 1

    for _ in range(50):
        assert pacing.wait() <= 0
        pacing.record_start()
    assert pace.wait() <= 0, "an order begins no request"
    pace.record_request()

    assert pace.wait() == pytest.approx(0.9 * pacing.interval)
    assert pacing.wait() <= 0


def test_orders_and_requests_wait_until_a_pause_for_all_is_over() -> None:
    hand = Hand()
    pacing, pace = throttled(hand)

    pacing.record_throttle(5.0)

    assert pacing.wait() == pytest.approx(5.0)
    assert pace.wait() == pytest.approx(5.0)


def test_without_throttling_nothing_waits() -> None:
    hand = Hand()
    pacing = SharedPacing(clock=hand)
    pace = RequestPace(ConcurrencyLimit(4, gauge(), pacing, clock=hand), pacing)

    pace.record_request()

    assert pace.wait() == 0
    assert pace.most == 4
    assert not pacing.is_on
