"""The concurrency limit follows the responses of the external API."""

from array import array
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.evidence import Hand

from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.telemetry.shared_metrics import Gauge


@dataclass
class Limited:
    """A limit with its clock, pauses without jitter, and its metrics."""

    most: int
    hand: Hand = field(default_factory=Hand)
    shown: "array[float]" = field(default_factory=lambda: array("d", [0.0]))

    def __post_init__(self) -> None:
        self.pacing = Pauses(clock=self.hand, draw=min)
        self.pace = Pace(self.most, Gauge(memoryview(self.shown), 0), self.pacing, clock=self.hand)

    @property
    def value(self) -> int:
        assert self.shown[0] == self.pace.requests
        return self.pace.requests

    def refuse(self, told: float | None = 1.0, *, asked_before: float = 0.0) -> float:
        return self.pace.record_throttle(told, self.hand.at - asked_before)

    def answers_until(self, value: int) -> int:
        """How many answers bring the limit up to a value."""
        for count in range(100_000):
            if self.pace.requests >= value:
                return count
            self.pace.record_success()
        raise AssertionError(f"never {value}")


def test_it_begins_with_as_many_as_set_and_answers_alone_change_nothing() -> None:
    limited = Limited(250)

    for _ in range(1_000):
        limited.pace.record_success()

    assert limited.value == 250


def test_too_much_makes_it_begin_with_a_few_and_double_up_to_four_fifths_at_once() -> None:
    limited = Limited(100)

    limited.refuse()

    assert limited.value == 4
    assert limited.answers_until(80) == 76
    for _ in range(1_000):
        limited.pace.record_success()
    assert limited.value == 80


def test_after_ten_times_the_pause_it_grows_by_one_for_each_round() -> None:
    limited = Limited(100)
    limited.refuse(2.0)
    limited.answers_until(80)
    limited.hand.at += 22.5

    assert 80 <= limited.answers_until(81) <= 82


def test_what_was_in_flight_together_takes_it_off_once() -> None:
    limited = Limited(100)

    limited.refuse()
    limited.answers_until(80)
    for _ in range(99):
        limited.refuse(asked_before=0.5)

    assert limited.value == 80


def test_far_above_what_was_too_much_once_it_doubles_again() -> None:
    limited = Limited(1_000)
    limited.refuse()
    limited.answers_until(10)
    limited.hand.at += 1
    limited.refuse()
    limited.hand.at += 100
    limited.answers_until(15)

    assert limited.answers_until(1_000) <= 1_000


@pytest.mark.parametrize("most", [1, 7, 100])
def test_after_an_outage_it_doubles_from_a_few_to_as_many_as_set(most: int) -> None:
    limited = Limited(most)

    limited.pace.restart()

    assert limited.value == min(4, most)
    assert limited.answers_until(most) == max(0, most - 4)


def test_an_outage_in_between_ends_the_pause_and_what_was_too_much_is_forgotten() -> None:
    limited = Limited(100)
    for _ in range(10):
        limited.refuse(30.0)
        limited.hand.at += 1

    limited.pace.restart()

    assert limited.pacing.delay() <= 0
    assert limited.answers_until(100) == 96


def test_an_api_that_refuses_everything_for_a_while_is_asked_as_fast_as_ever_afterwards() -> None:
    limited = Limited(100)
    for _ in range(10):
        limited.refuse(1.0)
        limited.hand.at += limited.pacing.delay()

    assert limited.pacing.interval == 0


def test_if_one_at_a_time_is_too_much_there_is_a_pause_between_requests() -> None:
    limited = Limited(2)
    limited.refuse()
    assert limited.pacing.interval == 0

    limited.hand.at += 2.0
    limited.pace.record_success()
    limited.refuse()

    assert limited.value == 1
    assert limited.pacing.interval == 0.75


@given(
    most=st.integers(1, 300),
    events=st.lists(
        st.sampled_from(["record_success", "restart"]) | st.tuples(st.floats(0, 90) | st.none(), st.floats(0, 9)),
        max_size=400,
    ),
)
def test_whatever_happens_it_stays_between_one_and_as_many_as_set(most: int, events: list[object]) -> None:
    limited = Limited(most)

    for event in events:
        limited.hand.at += 0.3
        if isinstance(event, tuple):
            limited.refuse(event[0], asked_before=event[1])
        else:
            getattr(limited.pace, str(event))()

        assert 1 <= limited.value <= most
        assert 0 <= limited.pacing.interval <= 60
        assert limited.pacing.delay() <= 66
