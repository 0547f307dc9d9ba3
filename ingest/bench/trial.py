"""Runs trials one after the other, and waits for each to make progress: the skeleton of every bench.

announce ──▶ for each trial: clear ▶ load ▶ start ▶ sample until it is done ▶ stop ▶ reconcile ──▶ tables, chart
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from ingest.bench.errors import BenchFailed

STALLED_AFTER = 120.0
"""Seconds without progress after which a trial has failed, on a machine that is busy with something else."""

Case = TypeVar("Case")
Found = TypeVar("Found")


class Display(Protocol):
    """Shows how far a trial is."""

    def update(self, done: int) -> None:
        """This number of items is done."""


Progress = Callable[[str, int], AbstractContextManager[Display]]
"""Opens a display of an activity with that number of items."""


def run_trials(cases: Sequence[Case], run: Callable[[Case], Found], line: Callable[[Case, Found], str]) -> list[Found]:
    """Run each case in turn, and return what was found.

    Args:
        cases: what is to be run, in this order.
        run: runs one of them.
        line: says in one line what was found.
    """
    results = []
    for number, case in enumerate(cases, 1):
        results.append(run(case))
        report_progress(f"{number}/{len(cases)} {line(case, results[-1])}")
    return results


def wait_until_done(sample: Callable[[], str | None], *, name: str, every: float) -> None:
    """Sample a trial until it is done.

    Args:
        sample: says how far it is; None when it is done.
        name: of what runs, for people.
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


def announce(what: str, seconds: float) -> None:
    """Say what is going to run, and how long it will take."""
    report_progress(f"{what}, about {seconds / 60:.1f} minutes together")


def report_progress(line: str) -> None:
    """Write progress, to stderr."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
