"""Times to begin requests: each is used once and soon, or it lapses."""

import math

from ingest.upstream.quota.quota_schedule import Schedule


def taken(schedule: Schedule, now: float) -> int:
    """How many requests may begin now."""
    count = 0
    while schedule.delay(now) <= 0:
        schedule.take()
        count += 1
    return count


def test_without_times_nothing_may_begin() -> None:
    assert Schedule().delay(100.0) == math.inf


def test_a_time_may_be_used_when_it_has_come_and_not_before() -> None:
    schedule = Schedule()
    schedule.add(10.0, 2, 0.5, 0.1)

    assert schedule.delay(9.0) == 1.0
    assert taken(schedule, 10.0) == 1
    assert schedule.delay(10.0) == 0.5
    assert taken(schedule, 10.5) == 1
    assert schedule.delay(10.5) == math.inf


def test_times_that_are_not_used_soon_lapse() -> None:
    schedule = Schedule()
    schedule.add(10.0, 10, 0.01, 0.02)

    assert taken(schedule, 10.055) == 2, "those of the last 20 ms"
    assert schedule.left(10.055) == 4
    assert taken(schedule, 11.0) == 0


def test_after_a_long_pause_no_more_than_a_moments_times_are_sent_at_once() -> None:
    schedule = Schedule()
    schedule.add(0.0, math.inf, 0.02, 0.02)

    assert taken(schedule, 3600.0) <= 2
    assert schedule.clear() == 0, "a safe share is nobody else's"


def test_blocks_are_used_one_after_the_other() -> None:
    schedule = Schedule()
    schedule.add(10.0, 1, 0.1, 0.1)
    schedule.add(10.1, 1, 0.1, 0.1)

    assert schedule.left(10.0) == 2
    assert schedule.end() == 10.2
    assert taken(schedule, 10.0) == 1
    assert taken(schedule, 10.1) == 1


def test_what_is_cleared_is_unused() -> None:
    schedule = Schedule()
    schedule.add(10.0, 5, 0.1, 0.1)
    taken(schedule, 10.0)

    assert schedule.clear() == 4
    assert schedule.delay(10.1) == math.inf
