"""Shows the demo's progress on stderr in a live view on a terminal, or else in a line every two seconds."""

import sys
import time
from abc import ABC, abstractmethod
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table

from ingest.demo.moment import Moment
from ingest.demo.plan import Plan

_LINE_EVERY = 2.0
_WIDE = 74  # columns from which on a row holds three facts
_UNKNOWN = "-"

Fact = tuple[str, str]
"""A value and its label."""


class View(ABC):
    """Shows the demo's progress. Call `show` only inside the context."""

    def step(self, text: str) -> None:
        """Print the current step."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    @abstractmethod
    def show(self, moment: Moment) -> None:
        """Show a sample."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...


def view_of(plan: Plan) -> View:
    """The view for the kind of stream that stderr is."""
    console = Console(stderr=True, highlight=False)
    return LiveView(plan, console) if console.is_terminal else LogView(plan)


class LogView(View):
    """Prints lines for a file or a pipe."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._next = 0.0

    def show(self, moment: Moment) -> None:
        """Write a line unless the last line is less than two seconds old."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_EVERY
        facts = ", ".join(
            " ".join(fact) for _, row in facts_of(self._plan, moment) for fact in row if fact[0] != _UNKNOWN
        )
        self.step(f"{moment.stored:,} of {self._plan.orders:,} orders stored: {facts}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class LiveView(View):
    """A live view that is redrawn in place and removed before the report is printed."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        # Redrawn only by `show`, because a refreshing thread would take CPU time from the workers.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def show(self, moment: Moment) -> None:
        """Draw a sample."""
        self._live.update(live_view(self._plan, moment, self._console.width), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def live_view(plan: Plan, moment: Moment, width: int) -> RenderableType:
    """Build the live view for a terminal with `width` columns."""
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    share = moment.stored / plan.orders
    bar.add_row(
        ProgressBar(total=plan.orders, completed=moment.stored),
        f"[bold]{moment.stored:,}[/bold] of {plan.orders:,}  {share:4.0%}",
    )
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    per_row = 3 if width >= _WIDE else 1
    for _ in range(per_row):
        table.add_column(justify="right", no_wrap=True, min_width=7, style="bold")
        table.add_column(no_wrap=True)
    for label, facts in facts_of(plan, moment):
        for start in range(0, len(facts), per_row):
            cells = [cell for fact in facts[start : start + per_row] for cell in fact]
            table.add_row("" if start else label, *cells)
    return Padding(Group(bar, "", table), (1, 1, 0, 1))


def facts_of(plan: Plan, moment: Moment) -> list[tuple[str, list[Fact]]]:
    """All facts to show, in rows with a label."""
    metrics, api = moment.metrics, moment.api
    request, order = "ingest_upstream_request_seconds", "ingest_order_latency_seconds"
    scheduled = metrics.total("ingest_orders_total", 'outcome="retried"')
    # Each response without an order led to an immediate or a scheduled retry.
    immediate = max(0.0, api.failures - scheduled)
    return [
        ("rate", [(f"{moment.rate:,.0f}", "/s now"), (f"{moment.mean_rate:,.0f}", "/s mean")]),
        (
            "queue",
            [
                (f"{metrics.total('ingest_queue_depth'):,.0f}", "waiting"),
                (f"{metrics.total('ingest_queue_pending'):,.0f}", "pending"),
                (f"{metrics.total('ingest_in_flight'):,.0f}", "in flight"),
            ],
        ),
        (
            "external API",
            [
                (seconds(metrics.quantile(0.5, request, 'code="2xx"')), "p50"),
                (seconds(metrics.quantile(0.99, request, 'code="2xx"')), "p99"),
                (f"{api.failures:,}", "faults"),
            ],
        ),
        (
            "retries",
            [
                (f"{immediate:,.0f}", "immediate"),
                (f"{scheduled:,.0f}", "scheduled"),
                (f"{metrics.total('ingest_retries_scheduled'):,.0f}", "waiting"),
            ],
        ),
        (
            "end to end",
            [(seconds(metrics.quantile(0.5, order)), "p50"), (seconds(metrics.quantile(0.99, order)), "p99")],
        ),
        (
            "time",
            [
                (f"{moment.elapsed:.1f} s", "elapsed"),
                (f"{plan.ideal:.1f} s", "ideal"),
                (f"{moment.memory / 2**20:,.0f} MiB", "workers"),
            ],
        ),
    ]


def seconds(value: float | None) -> str:
    """A duration in milliseconds or seconds, or a dash for None."""
    if value is None:
        return _UNKNOWN
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
