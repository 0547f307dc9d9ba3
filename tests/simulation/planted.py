"""`make simulate ARGS=--planted`: tries the simulation on workers without one safeguard each, and counts the stories to a violation."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from ablation.copies import Copy
from ablation.safeguards import Safeguard, safeguards

PLANTED = (
    "no-blame-while-open",
    "canary-before-blame",
    "canary-that-fails-opens",
    "unproven-response-opens",
    "success-after-the-response",
    "stop-during-a-canary",
    "second-response-before-a-dead-letter",
    "invalid-document-needs-evidence",
    "api-fault-is-released",
    "attempts-are-limited",
    "poison-message",
    "possible-poison-is-isolated",
    "expected-version",
    "ack-after-commit",
    "locked-rows-are-left-out",
    "requests-in-flight-are-claimed",
    "safe-share-ends-with-a-reply",
    "position-after-enqueuing",
    "overlap-of-polling",
    "queue-clock-is-kept-steady",
    "contradicted-sample-is-replaced",
)
"""Names of safeguards."""
_STORIES = re.compile(r"^([\d,]+) stories", re.MULTILINE)


def try_all(most: int, jobs: int) -> int:
    """Try every planted fault in up to `most` stories. The exit code is 1 if one is not found."""
    by_name = {each.name: each for each in safeguards()}
    with ThreadPoolExecutor(jobs) as threads:
        tried = threads.map(lambda name: _stories(by_name[name], most), PLANTED)
        missed = 0
        for name, stories in zip(PLANTED, tried, strict=True):
            missed += stories is None
            sys.stdout.write(f"{name}: {'NOT FOUND' if stories is None else stories}\n")
            sys.stdout.flush()
    return int(missed > 0)


def _stories(safeguard: Safeguard, most: int) -> int | None:
    """The number of stories until one has a violation, or None."""
    with Copy.made() as copy, copy.without(safeguard):
        run = subprocess.run(
            [sys.executable, "-m", "simulation", "--processes=1", "--stop", f"--seeds={most}"],
            cwd=copy.root / "tests",
            env={**os.environ, "PYTHONPATH": str(copy.root)},
            capture_output=True,
            text=True,
            check=False,
        )
    counted = _STORIES.search(run.stdout)
    if counted is None:
        raise RuntimeError(run.stderr)
    return int(counted[1].replace(",", "")) if run.returncode else None
