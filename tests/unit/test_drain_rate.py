"""When a full queue will have room, estimated from how fast it drains, within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.queue.produce.drain_rate import DrainRate, spread


def rate_of(*looks: tuple[float, int]) -> float | None:
    rate = DrainRate()
    for at, removed in looks:
        rate.note(at, removed)
    return rate.per_second()


@pytest.mark.parametrize(
    ("looks", "rate"),
    [
        ([], None),
        ([(0.0, 100)], None),
        ([(0.0, 100), (2.0, 120)], 10.0),
        ([(0.0, 100), (2.0, 100)], None),
        ([(0.0, 100), (2.0, 100), (12.0, 100)], 0.0),
        ([(0.0, 0), (2.0, 100), (10.0, 100), (21.0, 100), (22.0, 300)], 10.0),
        ([(0.0, 0), (60.0, 600)], None),
        ([(0.0, 900), (2.0, 3), (4.0, 5)], 1.0),
    ],
    ids=[
        "no look", "one look", "two looks", "still for a moment", "stalled", "old looks do not count",
        "too far apart", "another stream",
    ],
)  # fmt: skip
def test_the_rate_is_that_of_the_last_seconds(looks: list[tuple[float, int]], rate: float | None) -> None:
    assert rate_of(*looks) == rate


@given(st.floats(0, 1e9))
def test_what_callers_are_told_is_spread_and_bounded(seconds: float) -> None:
    least, most = spread(seconds, min), spread(seconds, max)

    assert least == min(300, max(1, seconds * 0.75))
    assert most == min(300, max(1, seconds * 1.25))
