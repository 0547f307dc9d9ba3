"""A small run of `make rolling`, which checks the report but not the speed."""

import pytest
from rehearsals.scale.rolling import Options, run, table


@pytest.mark.long
def test_all_workers_are_replaced_under_load_and_nothing_is_lost() -> None:
    found = run(Options(workers=2, concurrency=5, latency=(0.2, 0.4), calm=2.0, pause=0.0))

    assert (found.lost, found.wrong, list(found.exit_codes)) == (0, 0, [0] * 4)
    assert set(found.by_release) == {"last", "this"}
    assert found.seconds
    assert len(table(found).splitlines()) == len(found.seconds) + 3
