"""When a failed order is tried again."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.domain.deliveries.outcome import LONGEST_DELAY, retry_delay


def longest(low: float, high: float) -> float:
    assert low == 0.0
    return high


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (11, 300)])
def test_the_longest_delay_doubles_from_one_second_to_five_minutes(attempt: int, ceiling: float) -> None:
    assert retry_delay(attempt, longest) == ceiling


@given(attempt=st.integers(1, 10**9), seed=st.integers())
def test_a_delay_is_never_negative_and_never_above_the_cap(attempt: int, seed: int) -> None:
    delay = retry_delay(attempt, Random(seed).uniform)

    assert 0 <= delay <= LONGEST_DELAY


def test_orders_that_failed_together_do_not_come_back_together() -> None:
    draw = Random(1).uniform

    delays = sorted(retry_delay(10, draw) for _ in range(1_000))

    # Full jitter: spread over the whole of it, a tenth in each tenth.
    tenths = [sum(30 * tenth <= delay < 30 * (tenth + 1) for delay in delays) for tenth in range(10)]
    assert min(tenths) > 50
