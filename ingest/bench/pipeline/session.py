"""Many runs on the same servers, and what is said about them."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ingest.bench.machine import Machine
from ingest.bench.pipeline.figures import figures_of, medians
from ingest.bench.pipeline.plan import SERVICE
from ingest.bench.pipeline.run import Run
from ingest.bench.pipeline.tables import notes, tables
from ingest.bench.report import Report
from ingest.bench.stage import FOREIGN_STREAM, order_ids, stage
from ingest.lab.upstream.samples import sample_orders
from ingest.queue.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ingest.bench.pipeline.figures import Figures
    from ingest.bench.pipeline.plan import Plan
    from ingest.bench.stage import Api, Stage

NAME = "pipeline"
_POSTGRES = {"track_commit_timestamp": "on"}


@dataclass(frozen=True, slots=True)
class Servers:
    """Which servers to use; embedded ones where None is given."""

    redis_url: str | None = None
    postgres_dsn: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A report, and how to draw its chart into a file whose name has no suffix."""

    report: Report
    draw: Callable[[Path], None]

    def write(self, directory: Path) -> None:
        """Write the report and its chart into a directory."""
        self.report.write(directory)
        self.draw(directory / self.report.name)


class Session:
    """Servers that several runs share, one after the other."""

    def __init__(self, on: Stage) -> None:
        self._stage = on
        self._documents = sample_orders()
        self._api: Api | None = None
        self._api_options: list[str] = []

    def run(self, plan: Plan, contender: str) -> Figures:
        """Let one contender do one plan, and say in a line how it went."""
        figures = figures_of(Run(self._stage, self._api_for(plan), plan, contender, self._documents).play())
        say(line_of(figures))
        return figures

    def bytes_per_queued_order(self, plan: Plan) -> float:
        """What an order takes in Redis while it waits, with all of the plan's orders queued."""
        self._stage.clear()
        before = self._used_memory()
        asyncio.run(_enqueue(self._stage, order_ids(plan.orders, self._documents)))
        return round((self._used_memory() - before) / plan.orders, 1)

    def _used_memory(self) -> int:
        said: Any = self._stage.redis.info("memory")
        return int(said["used_memory"])

    def _api_for(self, plan: Plan) -> Api:
        options = plan.api_options()
        if self._api is None or options != self._api_options:
            if self._api is not None:
                self._api.stop()
            self._api, self._api_options = self._stage.api(*options), options
        return self._api


async def _enqueue(on: Stage, ids: Sequence[str]) -> None:
    async with Producer.connect(on.redis_url, on.stream) as producer:
        await producer.enqueue(ids)


@contextmanager
def session(servers: Servers) -> Iterator[Session]:
    """Start the servers, with tables."""
    if None in (servers.redis_url, servers.postgres_dsn):
        say("starting PostgreSQL and Redis ...")
    if servers.redis_url is not None:
        say(f"the queue '{FOREIGN_STREAM}' of the given Redis is emptied before each run")
    with stage(redis_url=servers.redis_url, postgres_dsn=servers.postgres_dsn, postgres_settings=_POSTGRES) as on:
        on.migrate()
        yield Session(on)


def compare(plan: Plan, rivals: Sequence[str], *, runs: int, servers: Servers, command: str) -> Result:
    """Run the service, and beside it each rival, so many times in turn; report the medians.

    Args:
        plan: for all of them.
        rivals: names of other contenders.
        runs: of each.
        servers: where.
        command: what was typed.
    """
    machine = Machine.here()
    contenders = [SERVICE, *rivals]
    with session(servers) as on:
        queued = None if plan.rate else on.bytes_per_queued_order(plan)
        done = [on.run(plan, name) for name in in_turn(contenders, runs)]
    rows = [medians([run for run in done if run["contender"] == name]) for name in contenders]
    report = Report(
        name=NAME,
        command=command,
        machine=machine,
        settings={**plan.as_dict(), "runs": runs, "redis_bytes_per_queued_order": queued},
        tables=tables(plan, rows),
        notes=notes(plan, done, queued),
        runs=done,
    )
    return Result(report, partial(_draw, plan, rows))


def _draw(plan: Plan, rows: Sequence[Figures], path: Path) -> None:
    from ingest.bench.pipeline.charts import draw_comparison  # noqa: PLC0415  Matplotlib takes half a second

    draw_comparison(plan, rows, path)


def in_turn(contenders: Sequence[str], runs: int) -> list[str]:
    """Each of them so many times, there and back again: what changes slowly on the machine meets all of them alike."""
    return [name for number in range(runs) for name in (contenders if number % 2 == 0 else contenders[::-1])]


def line_of(figures: Figures) -> str:
    """One run in a line, for whoever waits."""
    rate, ratio = figures["orders_per_s"], figures["ratio_to_ideal"]
    own = figures["own_cpu_us_per_order_without_startup"]
    parts = [
        f"{figures['contender']:>8}: {figures['stored']:,} stored in {figures['seconds'] or 0:.2f} s",
        f"{rate or 0:,.0f}/s",
        *([f"{ratio:.3f} x ideal"] if ratio else []),
        f"{own:,.0f} us CPU per order",
        f"lost {figures['lost']}",
        f"load before {figures['load_before']}, others' CPU {figures['other_busy_cores']} cores",
    ]
    return ", ".join(parts)


def say(line: str) -> None:
    """Progress, to stderr."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
