"""How far a command has come: a progress bar on a terminal, log lines elsewhere."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ingest.cli.common import say
from ingest.telemetry.logs import get_logger

_log = get_logger("dead")
_REPORT_EVERY = 5.0
# What is done before that needs no bar.
_BAR_AFTER = 0.5


class Display:
    """Shows one piece of work, if it takes a while.

    Args:
        doing: what is being done, a word or two.
        total: how many there are to do, if that is known.
    """

    def __init__(self, doing: str, total: int | None) -> None:
        console = Console(stderr=True)
        self._doing = doing
        self._total = total
        self._told = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task(doing, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        """A line beside the progress."""
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            say(line)

    def update(self, done: int) -> None:
        """Show how far it has come."""
        if self._bar:
            self._bar.update(self._task, completed=done)
            if time.monotonic() - self._told > _BAR_AFTER:
                self._bar.start()
        elif time.monotonic() - self._told > _REPORT_EVERY:
            self._told = time.monotonic()
            _log.info(self._doing, done=done, **({} if self._total is None else {"of": self._total}))
