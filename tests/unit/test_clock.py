"""The shared clock keeps the queue server's time, whatever the clock of this host shows."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from ingest.flow.clock import SharedClock

SERVER = 1_900_000_000.0  # the server's time when the hand is at 0: years from this host's


@dataclass
class Hand:
    """A monotonic clock whose hand the test moves, in seconds."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


def sampled(clock: SharedClock, hand: Hand, *, there: float, back: float, ahead: float = 0.0) -> None:
    """A heartbeat that takes so many seconds to the server, and so many back."""
    asked_at = hand.at
    hand.at += there
    told = SERVER + hand.at + ahead
    hand.at += back
    clock.sample(told, asked_at)


def error(clock: SharedClock, hand: Hand) -> float:
    """How far it is from the server's."""
    return abs(clock.now() - (SERVER + hand.at))


def test_before_the_first_sample_it_is_the_hosts() -> None:
    clock = SharedClock()

    assert abs(clock.now() - time.time()) < 1


def test_after_a_sample_it_is_the_servers() -> None:
    hand = Hand(500.0)
    clock = SharedClock(monotonic=hand)

    sampled(clock, hand, there=0.001, back=0.001)

    assert error(clock, hand) < 1e-6


def test_it_goes_on_between_samples() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.001, back=0.001)

    hand.at += 100

    assert error(clock, hand) < 1e-6


@pytest.mark.parametrize(("there", "back"), [(2.0, 0.0), (0.0, 2.0), (1.0, 1.0)])
def test_it_is_wrong_by_no_more_than_half_the_time_that_the_sample_took(there: float, back: float) -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)

    sampled(clock, hand, there=there, back=back)

    assert error(clock, hand) <= 1.0 + 1e-6


def test_a_slow_sample_does_not_replace_a_quick_one() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.001, back=0.001)

    for _ in range(20):
        hand.at += 2.0
        sampled(clock, hand, there=0.8, back=0.0)

    assert error(clock, hand) < 0.01


def test_a_quicker_sample_replaces_a_slow_one() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=2.0, back=0.0)

    sampled(clock, hand, there=0.001, back=0.001)

    assert error(clock, hand) < 1e-6


def test_ever_slower_samples_do_not_carry_it_away_little_by_little() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    took = 0.002

    for _ in range(12):
        sampled(clock, hand, there=took, back=0.0)
        hand.at += 1.0
        took *= 1.9

    assert error(clock, hand) < 0.05


def test_a_slow_sample_is_better_than_an_old_one() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.001, back=0.001, ahead=-30.0)

    hand.at += 61.0
    sampled(clock, hand, there=0.4, back=0.4)

    assert error(clock, hand) < 0.5


def test_a_clock_that_is_set_ahead_is_followed() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.001, back=0.001, ahead=-3600.0)

    sampled(clock, hand, there=0.001, back=0.001)

    assert error(clock, hand) < 1e-6


@pytest.mark.parametrize("ahead", [20.0, 2.0])
def test_a_slow_sample_that_contradicts_a_quick_one_is_followed(ahead: float) -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.0001, back=0.0001)

    hand.at += 1.0
    sampled(clock, hand, there=0.3, back=0.3, ahead=ahead)

    assert abs(clock.now() - (SERVER + hand.at + ahead)) < 0.5


def test_the_reply_to_a_frozen_process_changes_it_as_little_as_necessary() -> None:
    hand = Hand(500.0)
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.001, back=0.001)

    sampled(clock, hand, there=39.0, back=0.001, ahead=1.0)

    assert abs(error(clock, hand) - 1.0) < 0.01


def test_it_never_goes_back() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.001, back=0.001, ahead=30.0)
    before = clock.now()

    sampled(clock, hand, there=0.001, back=0.001)

    assert clock.now() == before


def test_its_bounds_contain_the_servers_time_whatever_took_longer() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    assert clock.bounds() is None

    for there, back in ((2.0, 0.0), (0.0, 1.0), (0.001, 0.001)):
        sampled(clock, hand, there=there, back=back)
        hand.at += 5.0
        bounds = clock.bounds()

        assert bounds is not None
        assert bounds[0] - 1e-6 <= SERVER + hand.at <= bounds[1] + 1e-6


def test_it_says_the_same_as_a_date() -> None:
    hand = Hand()
    clock = SharedClock(monotonic=hand)
    sampled(clock, hand, there=0.0, back=0.0)

    assert clock.utc() == datetime.fromtimestamp(SERVER, UTC)
