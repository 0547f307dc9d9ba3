"""The shares of the parts of queues in a search of limited size."""

import pytest

from ingest.queue.operate.order_search import most_of_each


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        ([], 100),
        ([60, 0, 40], 100),
        ([1_000_000, 70, 20], 40),
        ([60, 30, 40], 35),
        ([50, 50, 50], 33),
        ([0, 101], 100),
        ([9] * 200, 1),
    ],
)
def test_short_parts_are_searched_completely_and_long_ones_share_the_rest(sizes: list[int], share: int) -> None:
    assert most_of_each(sizes, 100) == share
