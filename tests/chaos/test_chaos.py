"""A minute of chaos as part of all tests. `make chaos` runs longer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.plan import RedisKind, kinds_with

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[1]
SEED = 20


@pytest.mark.timeout(900)  # a minute, until the queue is empty (seven at most), and until everything has ended
def test_every_accepted_order_is_accounted_for_whatever_fails() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--minutes=1", f"--seed={SEED}", "--json"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )

    # A failure shows the faults with their times, the results, and the folder of the logs.
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == 0, f"{done.stderr}\n{json.dumps(report, indent=1)}"
    assert report["sound"]
    assert all(report["faults"][kind.value] >= 1 for kind in kinds_with(RedisKind.STANDALONE)), report["faults"]
    assert list(report["accounts"]) == ["shop-1", "shop-2", "shop-3"]
    for account in report["accounts"].values():
        assert account["stored"] > 0
        assert set(account["dead_letters"]) <= {"not_found", "invalid_order", "invalid_message"}
