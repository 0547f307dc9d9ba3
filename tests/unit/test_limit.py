"""The concurrency limit follows what the external API says of it."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.flow.limit import ConcurrencyLimit
from ingest.telemetry.board import Gauge


def limit(most: int) -> "tuple[ConcurrencyLimit, array[float]]":
    cells = array("d", [0.0])
    return ConcurrencyLimit(most, Gauge(memoryview(cells), 0)), cells


def answers_until(limited: ConcurrencyLimit, value: int) -> int:
    """How many answers bring the limit up to a value."""
    for count in range(100_000):
        if limited.value >= value:
            return count
        limited.answered()
    raise AssertionError(f"never {value}")


def test_it_begins_with_as_many_as_set_and_shows_them() -> None:
    limited, shown = limit(250)

    assert (limited.value, shown[0]) == (250, 250.0)


def test_answers_alone_change_nothing() -> None:
    limited, shown = limit(50)

    for _ in range(1_000):
        limited.answered()

    assert (limited.value, shown[0]) == (50, 50.0)


def test_too_much_takes_a_fifth_off() -> None:
    limited, shown = limit(100)

    limited.throttled()

    assert (limited.value, shown[0]) == (80, 80.0)


def test_what_was_under_way_together_takes_it_off_once() -> None:
    limited, _ = limit(100)

    for _ in range(100):
        limited.throttled()

    assert limited.value == 80


@pytest.mark.parametrize("answered", [0, 60])
def test_what_is_sent_after_the_cut_may_cut_again(answered: int) -> None:
    limited, _ = limit(100)
    for _ in range(100 - answered):
        limited.throttled()
    for _ in range(answered + 1):
        limited.answered()
    before = limited.value

    limited.throttled()

    assert limited.value == pytest.approx(0.8 * before, abs=1)


def test_it_never_falls_below_one() -> None:
    limited, _ = limit(100)

    for _ in range(10_000):
        limited.throttled()

    assert limited.value == 1


def test_near_what_was_too_much_it_grows_by_one_for_each_round_of_answers() -> None:
    limited, _ = limit(100)
    limited.throttled()

    assert 80 <= answers_until(limited, 81) <= 82


def test_far_below_what_was_too_much_it_doubles_with_each_round_of_answers() -> None:
    limited, _ = limit(1_000)
    for _ in range(100_000):
        limited.throttled()
    assert limited.value == 1
    limited.forget()

    assert answers_until(limited, 700) <= 700


def test_it_comes_back_to_as_many_as_set_and_not_further() -> None:
    limited, shown = limit(40)
    for _ in range(1_000):
        limited.throttled()

    answers_until(limited, 40)
    for _ in range(1_000):
        limited.answered()

    assert (limited.value, shown[0]) == (40, 40.0)


@pytest.mark.parametrize(("fits", "most"), [(8, 100), (90, 100), (1, 30), (20, 1000)])
def test_with_an_api_that_bears_less_it_settles_near_what_the_api_bears(fits: int, most: int) -> None:
    limited, _ = limit(most)
    refused = asked = 0

    for round_ in range(400):
        # All that may be in flight is asked for together: the API answers as many as fit.
        under_way = limited.value
        for number in range(under_way):
            if number < fits:
                limited.answered()
            else:
                limited.throttled()
                refused += round_ >= 100
            asked += round_ >= 100

    assert limited.value <= 1.5 * fits + 2
    # One at a time is the least, and the next step is twice that.
    assert refused <= (0.35 if fits > 1 else 0.65) * asked


@given(most=st.integers(1, 300), events=st.lists(st.sampled_from(["answered", "throttled", "forget"]), max_size=400))
def test_whatever_happens_it_stays_between_one_and_as_many_as_set(most: int, events: list[str]) -> None:
    limited, shown = limit(most)

    for event in events:
        getattr(limited, event)()

        assert 1 <= limited.value <= most
        assert shown[0] == limited.value
