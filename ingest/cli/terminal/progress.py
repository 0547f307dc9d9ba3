"""The progress of a command: a progress bar on a terminal, periodic log lines elsewhere."""

import sys
import time
from collections.abc import Callable, Coroutine
from typing import IO, Any, Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ingest.cli.invocation import say
from ingest.cli.terminal.width import wrapped
from ingest.process.interrupt import run_interruptible
from ingest.telemetry.logs import get_logger

_T = TypeVar("_T")
_log = get_logger("progress")
_LOG_EVERY = 5.0
# Work that is done sooner needs no bar.
_BAR_AFTER = 0.5


def run_with_progress(
    activity: str, work: Callable[..., Coroutine[Any, Any, _T]], *, data_stream: IO[str] | None = None
) -> _T:
    """Run what reports to `on_progress`, until Ctrl-C. The other arguments are passed to the display."""

    async def run() -> _T:
        with ProgressDisplay(activity, data_stream=data_stream) as display:
            return await work(on_progress=display.update)

    return run_interruptible(run())


class ProgressDisplay:
    """Shows the progress of one activity, if it takes a while.

    Args:
        activity: the work, in one or two words.
        total: how many items there are, if known.
        data_stream: where data is written at the same time. If that is a terminal, the data shows the progress, and a bar would
            be between its lines.
        quiet: whether to show no progress.
    """

    # The text of the bar about the items.
    amount: ProgressColumn = MofNCompleteColumn()

    def __init__(
        self, activity: str, total: int | None = None, *, data_stream: IO[str] | None = None, quiet: bool = False
    ) -> None:
        console = Console(stderr=True)
        self._activity = activity
        self._total = total
        self._started = self._logged = time.monotonic()
        self._bar: Progress | None = None
        self._is_shown = not quiet and (data_stream is None or not data_stream.isatty())
        if self._is_shown and console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                self.amount,
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            # Drawing takes CPU time from the measured work.
            self._bar = Progress(*columns, console=console, transient=True, refresh_per_second=4)
            self._task = self._bar.add_task(activity, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Print a line next to the progress."""
        if self._bar:
            self._bar.console.print(wrapped(line, sys.stderr), highlight=False, markup=False, soft_wrap=True)
        else:
            say(line)

    def update(self, done: int, total: int | None = None) -> None:
        """Show how many items are done. `total` replaces the total that was known so far."""
        self._total = self._total if total is None else total
        if self._bar:
            self._bar.update(self._task, completed=done, total=self._total, description=self.describe())
            if time.monotonic() - self._started > _BAR_AFTER:
                self._bar.start()
        elif self._is_shown and time.monotonic() - self._logged > _LOG_EVERY:
            self._logged = time.monotonic()
            self.log(done)

    def describe(self) -> str:
        """The text before the bar."""
        return self._activity

    def log(self, done: int) -> None:
        """Log how many items are done."""
        of = {} if self._total is None else {"of": self._total}
        _log.info("command_progress", activity=self._activity, done=done, **of)
