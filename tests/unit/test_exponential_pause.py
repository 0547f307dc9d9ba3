"""A pause grows with each failure up to its limit, whatever the number of failures."""

import pytest

from ingest.domain.exponential_pause import exponential_pause


@pytest.mark.parametrize(
    ("failures", "pause"), [(-1, 0.5), (0, 0.5), (1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (61, 5.0), (100_000, 5.0)]
)
def test_a_pause_doubles_up_to_the_longest(failures: int, pause: float) -> None:
    assert exponential_pause(0.5, 5.0, failures) == pause


def test_a_pause_grows_as_chosen() -> None:
    assert [exponential_pause(0.5, 4.0, failures, 1.5) for failures in (0, 1, 6)] == [0.5, 0.75, 4.0]
