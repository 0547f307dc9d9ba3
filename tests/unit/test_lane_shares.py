"""How reading is divided between the lanes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.queue.consume.reading import MainShare, kept

COUNTS = st.integers(0, 200)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 25, 100])
def test_the_main_lane_gets_a_tenth_whatever_the_size_of_reads(count: int) -> None:
    share = MainShare()

    shares = [share.next(count) for _ in range(1_000)]

    assert abs(sum(shares) - 100 * count) <= 1
    assert max(shares) <= count


@given(express=COUNTS, main=COUNTS, count=st.integers(1, 100), share=COUNTS)
def test_what_is_kept_fills_the_room_and_no_more_and_respects_the_share(
    express: int, main: int, count: int, share: int
) -> None:
    share = min(share, count)

    from_express, from_main = kept([None] * express, [None] * main, count, share)

    assert from_express + from_main == min(count, express + main)
    assert 0 <= from_express <= express
    assert min(share, main) <= from_main <= main
