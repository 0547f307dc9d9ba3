"""How far the bench is, on stderr: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ingest.bench.patterns.plan import PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ingest.bench.patterns.plan import Pattern, Plan

_LINE_EVERY = 10.0


def announce(plan: Plan) -> None:
    """Say what is going to happen, and how long it will take."""
    seconds = plan.expected_in_all()
    about = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
    ways = f"{len(plan.patterns)} ways" if len(plan.patterns) > 1 else "one way"
    twice = ", with and without a kill" if plan.kill else ""
    longest = max(plan.patterns, key=plan.expected)
    one = f"{plan.expected(longest):,.0f} s for one run of '{PROFILES[longest].title}'"
    console = Console(stderr=True, highlight=False)
    console.print(f"{plan.orders:,} orders in {ways}{twice}: about {about}, {one}.", soft_wrap=True)
    if seconds > 180:
        console.print("--orders 1000 is quicker, --no-kill leaves out the second half.", soft_wrap=True)


@contextmanager
def shown(plan: Plan, pattern: Pattern, expected: float, *, kill: bool) -> Iterator[Callable[[int], None]]:
    """Show one run while the block runs; what it gives is told how many orders are stored."""
    console = Console(stderr=True, highlight=False)
    title = f"{PROFILES[pattern].title}{', one killed half-way' if kill else ''}"
    if not console.is_terminal:
        console.print(f"{title}: about {expected:.0f} s", soft_wrap=True)
        yield _Lines(console, plan.orders).show
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn only when told: a thread that draws would take its share of the CPU from what is measured.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task = progress.add_task(f"{title} (about {expected:.0f} s)", total=plan.orders)

        def show(stored: int) -> None:
            progress.update(task, completed=stored, refresh=True)

        yield show


class _Lines:
    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._next = time.monotonic() + _LINE_EVERY

    def show(self, stored: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_EVERY
            self._console.print(f"  {stored:,} of {self._total:,} stored", soft_wrap=True)
