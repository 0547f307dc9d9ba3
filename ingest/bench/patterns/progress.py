"""Shows on stderr how many orders a run has stored: a bar on a terminal, else a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ingest.bench.trial import say

_LINE_EVERY = 10.0


@contextmanager
def shown(title: str, orders: int) -> Iterator[Callable[[int], None]]:
    """Show one run while the block runs; what it gives is told how many orders are stored."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        say(title)
        yield _lines(orders)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn only when told: a thread that draws would take CPU time from what is measured.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task = progress.add_task(title, total=orders)

        def show(stored: int) -> None:
            progress.update(task, completed=stored, refresh=True)

        yield show


def _lines(orders: int) -> Callable[[int], None]:
    due = time.monotonic() + _LINE_EVERY

    def show(stored: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _LINE_EVERY
            say(f"  {stored:,} of {orders:,} stored")

    return show
