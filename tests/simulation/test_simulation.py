"""Random stories of real workers in virtual time: every order ends as guaranteed. `make simulate` plays more of them."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
STORIES, PARTS = 320, 4
# A story with lost messages and several processes that are killed, stopped and frozen.
SEED = 70


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_order_ends_as_guaranteed_whatever_happens(part: int) -> None:
    count = STORIES // PARTS

    done = subprocess.run(
        [sys.executable, "-m", "simulation", "--processes=1", f"--seeds={count}", f"--first={part * count}"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )

    # A failure shows the stories with their seeds.
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{count:,} stories" in done.stdout


def test_a_story_takes_the_same_course_in_each_process() -> None:
    def course(seed: int) -> str:
        command = [sys.executable, "-m", "simulation", f"--seed={seed}"]
        return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=True).stdout.splitlines()[0]

    courses = [course(SEED) for _ in range(2)]

    assert courses[0].startswith("course ")
    assert courses[0] == courses[1]
