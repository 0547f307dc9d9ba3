"""The parts of queues that a search of limited size reads."""

import pytest

from ingest.queue.operate.order_search import longest_searched


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ([], 100),
        ([60, 0, 40], 100),
        ([1_000_000, 70, 20], 999_999),
        ([60, 50, 40], 59),
        ([50, 50, 50], 49),
        ([0, 101], 100),
    ],
)
def test_the_shortest_parts_are_searched_that_fit_together(sizes: list[int], limit: int) -> None:
    assert longest_searched(sizes, 100) == limit
