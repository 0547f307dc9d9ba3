"""Reports the result of the demo in a table on a terminal, or in a JSON object for scripts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ingest.demo.plan import MEAN_LATENCY, Plan
from ingest.demo.result import Example, Result
from ingest.demo.view import seconds
from ingest.lab.endpoints import Metrics
from ingest.lab.upstream.stats import StatsReport
from ingest.lab.usage import MEASURE

_NARROWEST, _WIDEST = 40, 100
_ALL_COLUMNS = 76  # width that the example rows need


@dataclass(frozen=True, slots=True)
class Kept:
    """The servers that were left running, and the command that stops them."""

    redis_url: str
    postgres_dsn: str
    upstream_url: str
    stop_command: str


@dataclass(frozen=True, slots=True)
class Report:
    """The measurements and results of the demo.

    Attributes:
        api: the external API's counters at the end.
        metrics: the workers' counters at the end.
        peak_memory: peak memory use of all worker processes in bytes.
        worker_exit_code: exit code of the workers, or None if they had to be killed.
        kept: the servers left running, or None.
    """

    plan: Plan
    result: Result
    api: StatsReport
    metrics: Metrics
    peak_memory: int
    worker_exit_code: int | None
    kept: Kept | None = None

    @property
    def is_ok(self) -> bool:
        """Whether every order is stored once, with the right content, and the workers stopped with exit code 0."""
        found = self.result
        faults = (found.lost, found.written_twice, found.wrong, found.unexpected, self.worker_exit_code)
        return found.stored == self.plan.orders and all(fault == 0 for fault in faults)

    @property
    def wall(self) -> float:
        """Seconds from the first request to the last commit."""
        first, last = self.api.first_request, self.result.last_commit
        return last - first.unix if first is not None and last is not None else 0.0

    @property
    def fetched(self) -> int:
        """Number of orders that a worker received completely."""
        return int(self.metrics.total("ingest_upstream_request_seconds_count", 'code="2xx"'))

    @property
    def faults(self) -> dict[str, int]:
        """Faults by kind. A truncated response counts as 200 for the API, but not for the workers."""
        by_status = {status: count for status, count in self.api.by_status.items() if status != "200"}
        broken = self.api.by_status.get("200", 0) - self.fetched
        return by_status | ({"truncated": broken} if broken > 0 else {})

    @property
    def retries(self) -> tuple[int, int]:
        """Immediate retries within a delivery, and scheduled retries."""
        deliveries = int(self.metrics.total("ingest_orders_total"))
        return self.api.requests - deliveries, int(self.metrics.total("ingest_orders_total", 'outcome="retried"'))

    def as_dict(self) -> dict[str, Any]:
        """The whole report for scripts, with times in seconds and memory in bytes."""
        found, plan = self.result, self.plan
        immediate, scheduled = self.retries
        rounded = {
            name: None if value is None else round(value, 4)
            for name, value in {
                "wall_seconds": self.wall,
                "ideal_seconds": plan.ideal,
                "wall_over_ideal": self.wall / plan.ideal,
                "orders_per_second": plan.orders / self.wall if self.wall else None,
                "upstream_p50_seconds": self._request(0.5),
                "upstream_p99_seconds": self._request(0.99),
            }.items()
        }
        return {
            "ok": self.is_ok,
            **asdict(plan),
            **{name: value for name, value in asdict(found).items() if name not in {"examples", "last_commit"}},
            **rounded,
            "requests": self.api.requests,
            "peak_concurrency": self.api.peak_concurrency,
            "faults": self.faults,
            "retries_immediate": immediate,
            "retries_scheduled": scheduled,
            "fetched_twice": self.fetched - found.stored,
            "peak_memory": self.peak_memory,
            "memory_measure": MEASURE,
            "worker_exit_code": self.worker_exit_code,
            "examples": [asdict(example) for example in found.examples],
            "kept": None if self.kept is None else asdict(self.kept),
        }

    def print(self, program: str) -> None:
        """Print the report. `program` is the command that started the demo."""
        console = Console(highlight=False)
        # A file does not define a width.
        console.width = max(_NARROWEST, min(console.width, _WIDEST)) if console.is_terminal else _WIDEST
        for part in (self._facts(), _rows(self.result.examples, console.width)):
            console.print()
            console.print(part)
        console.print()
        for line in self._next(program):
            # Never wrapped, so that commands can be copied.
            console.print(line, soft_wrap=True, markup=False)

    def _request(self, share: float) -> float | None:
        return self.metrics.quantile(share, "ingest_upstream_request_seconds", 'code="2xx"')

    def _facts(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(justify="right", no_wrap=True, style="bold")
        table.add_column()
        for label, value, note, is_ok in self._outcome_rows():
            table.add_row(label, f"[{'green' if is_ok else 'red'}]{value}", note)
        for row in (*self._speed_rows(), *self._cost_rows()):
            table.add_row(*row)
        return table

    def _outcome_rows(self) -> list[tuple[str, str, str, bool]]:
        """Label, value, note, and whether the value is the expected one."""
        found, orders = self.result, self.plan.orders
        compared = f"of {found.compared:,} compared line by line with the original"
        rows = [("orders stored", f"{found.stored:,}", f"of {orders:,} enqueued", found.stored == orders)]
        for label, count, note in (
            ("lost", found.lost, "neither stored, nor queued, nor a dead letter"),
            ("written twice", found.written_twice, "according to PostgreSQL's count of inserts and updates"),
            ("wrong content", found.wrong, compared),
            ("dead letters", found.dead, ""),
        ):
            rows.append((label, f"{count:,}", note, count == 0))
        if found.unfinished:
            rows.append(("unfinished", f"{found.unfinished:,}", "still queued or waiting for a retry", False))
        if found.unexpected:
            rows.append(
                ("unexpected", f"{found.unexpected:,}", "rows or dead letters of orders that were not enqueued", False)
            )
        if self.worker_exit_code != 0:
            code = "killed" if self.worker_exit_code is None else str(self.worker_exit_code)
            rows.append(("exit code", code, "of the workers, which should have stopped with 0", False))
        return rows

    def _speed_rows(self) -> list[tuple[str, str, str]]:
        plan, ratio = self.plan, self.wall / self.plan.ideal
        rate = plan.orders / self.wall if self.wall else 0.0
        ideal = f"{plan.orders:,} orders x {MEAN_LATENCY * 1000:.0f} ms / {plan.in_flight:,} in flight"
        if plan.orders < plan.in_flight:
            ideal = "one response, because there are more slots than orders"
        return [
            ("wall time", f"{self.wall:.2f} s", f"first request to last commit, {rate:,.0f}/s, {ratio:.2f} x ideal"),
            ("ideal", f"{plan.ideal:.2f} s", ideal),
        ]

    def _cost_rows(self) -> list[tuple[str, str, str]]:
        immediate, scheduled = self.retries
        latency = f"p50 {seconds(self._request(0.5))}, p99 {seconds(self._request(0.99))}"
        kinds = ", ".join(f"{count:,} {_kind(kind)}" for kind, count in sorted(self.faults.items()))
        workers = f"{self.plan.processes} worker{'s' if self.plan.processes != 1 else ''}"
        measured = f"{MEASURE} of {workers}, supervisor and /metrics together"
        return [
            ("requests", f"{self.api.requests:,}", f"at most {self.api.peak_concurrency:,} concurrently, {latency}"),
            ("faults", f"{sum(self.faults.values()):,}", kinds),
            ("retries", f"{immediate + scheduled:,}", f"{immediate:,} immediate, {scheduled:,} scheduled"),
            ("fetched twice", f"{self.fetched - self.result.stored:,}", ""),
            ("peak memory", f"{self.peak_memory / 2**20:,.0f} MiB", measured),
        ]

    def _next(self, program: str) -> list[str]:
        if self.kept is None:
            return [f"To look at the stored orders: {program} demo --keep"]
        kept = self.kept
        return [
            "PostgreSQL, Valkey and the simulated external API are still running:",
            f"  export INGEST_REDIS_URL='{kept.redis_url}'",
            f"  export INGEST_POSTGRES_DSN='{kept.postgres_dsn}'",
            f"  export INGEST_UPSTREAM_URL='{kept.upstream_url}'",
            "With these variables set, you can run:",
            f"  {program} status",
            f"  {program} enqueue 536365 && {program} worker     # Ctrl-C stops the worker",
            """  psql "$INGEST_POSTGRES_DSN" -c 'SELECT * FROM order_lines LIMIT 5'""",
            '  valkey-cli -u "$INGEST_REDIS_URL"                # or redis-cli',
            "To stop all three and remove their data:",
            f"  {kept.stop_command}",
        ]


def _kind(fault: str) -> str:
    return f"x {fault}" if fault.isdigit() else fault


def _amount(total: Decimal) -> str:
    """The total with all stored digits and at least two decimals."""
    exponent = total.as_tuple().exponent
    return f"{total:,.2f}" if isinstance(exponent, int) and exponent > -2 else f"{total:,}"


def _rows(examples: Sequence[Example], width: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in ("order_id", "status", "placed_at (UTC)", "customer", "country", "lines", "total"):
        justify: Literal["left", "right"] = "right" if name in {"lines", "total"} else "left"
        table.add_column(name, justify=justify, no_wrap=True, header_style="dim")
    for row in examples:
        table.add_row(
            row.order_id,
            row.status,
            f"{row.placed_at:%Y-%m-%d %H:%M}",
            _or_null(row.customer_id),
            _or_null(row.country),
            f"{row.line_count:,}",
            _amount(row.total),
        )
    if width < _ALL_COLUMNS:
        # A narrow terminal would truncate these columns.
        table.columns = [column for column in table.columns if column.header not in {"placed_at (UTC)", "country"}]
    return Group("A few rows, read back with SQL:", table)


def _or_null(text: str | None) -> str:
    return "[dim]null[/dim]" if text is None else escape(text)
