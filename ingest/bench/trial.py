"""Runs trials in sequence and waits until each has finished, as the common structure of all benches.

announce ──▶ for each trial: clear ▶ load ▶ start ▶ sample until done ▶ stop ▶ reconcile ──▶ tables, chart
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from ingest.bench.errors import BenchFailed

STALLED_AFTER = 120.0
"""Seconds without progress after which a trial has failed, even on a busy machine."""

Case = TypeVar("Case")
Found = TypeVar("Found")


class Display(Protocol):
    """Shows the progress of a trial."""

    def update(self, done: int) -> None:
        """Record the number of finished items."""


Progress = Callable[[str, int], AbstractContextManager[Display]]
"""Opens a progress display for an activity with this number of items."""


def run_trials(cases: Sequence[Case], run: Callable[[Case], Found], line: Callable[[Case, Found], str]) -> list[Found]:
    """Run all cases in this order, and return their results.

    Args:
        cases: the cases.
        run: runs a case.
        line: formats a result as one line.
    """
    results = []
    for number, case in enumerate(cases, 1):
        results.append(run(case))
        report_progress(f"{number}/{len(cases)} {line(case, results[-1])}")
    return results


def wait_until_done(sample: Callable[[], str | None], *, name: str, every: float) -> None:
    """Sample a trial until it is done.

    Args:
        sample: returns the current progress, or None when the trial is done.
        name: display name of the trial.
        every: seconds between samples.

    Raises:
        BenchFailed: the sample has not changed for `STALLED_AFTER` seconds.
    """
    before, moved = "", time.monotonic()
    while (now := sample()) is not None:
        if now != before:
            before, moved = now, time.monotonic()
        elif time.monotonic() - moved > STALLED_AFTER:
            raise BenchFailed(f"{name} makes no progress: {now}")
        time.sleep(every)


def announce(runs: str, seconds: float) -> None:
    """Report the planned runs and their approximate duration."""
    report_progress(f"{runs}, about {seconds / 60:.1f} minutes in total")


def report_progress(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
