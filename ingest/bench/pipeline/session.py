"""Runs contenders, or the values of a sweep, on the same servers, and reports the medians."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ingest.bench.machine import Machine
from ingest.bench.pipeline.figures import Figures, figures_of, medians
from ingest.bench.pipeline.plan import SERVICE, Plan
from ingest.bench.pipeline.run import Run
from ingest.bench.pipeline.sweep import Sweep, sweep_notes, sweep_table
from ingest.bench.pipeline.tables import notes, tables
from ingest.bench.report import Report, Result
from ingest.bench.stage import FOREIGN_STREAM, Api, Servers, Stage, stage
from ingest.bench.trial import run_trials, say
from ingest.lab.session import order_ids
from ingest.lab.upstream.samples import sample_orders

_POSTGRES = {"track_commit_timestamp": "on"}


class Session:
    """Servers that several runs share, one after the other."""

    def __init__(self, on: Stage) -> None:
        self._stage = on
        self._documents = sample_orders()
        self._api: Api | None = None
        self._api_options: list[str] = []

    def run(self, plan: Plan, contender: str) -> Figures:
        """Run one contender at one plan."""
        return figures_of(Run(self._stage, self._api_for(plan), plan, contender, self._documents).measure())

    def bytes_per_queued_order(self, plan: Plan) -> float:
        """What an order takes in Redis while it waits, with all of the plan's orders queued."""
        self._stage.clear()
        before = self._used_memory()
        ids = self._stage.home / "queued.txt"
        ids.write_text("".join(f"{order_id}\n" for order_id in order_ids(plan.orders, self._documents, "BENCH")))
        self._stage.commands.start("enqueue", "--quiet", "--file", ids.name).finish()
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


@contextmanager
def session(servers: Servers) -> Iterator[Session]:
    """Start the servers, with tables."""
    if None in (servers.redis_url, servers.postgres_dsn):
        say("starting PostgreSQL and Redis ...")
    if servers.redis_url is not None:
        say(f"the queue '{FOREIGN_STREAM}' of the given Redis is emptied before each run")
    with stage(servers, postgres_settings=_POSTGRES) as on:
        on.migrate()
        yield Session(on)


def compare(plan: Plan, rivals: Sequence[str], *, runs: int, servers: Servers, command: str) -> Result:
    """Run the service, and each rival beside it, in turn; report the medians.

    Args:
        plan: for all of them.
        rivals: names of other contenders.
        runs: of each.
        servers: where.
        command: as it was typed.
    """
    machine = Machine.here()
    contenders = [SERVICE, *rivals]
    with session(servers) as on:
        queued = None if plan.rate else on.bytes_per_queued_order(plan)
        done = run_trials(in_turn(contenders, runs), partial(on.run, plan), _line)
    rows = [medians([run for run in done if run["contender"] == name]) for name in contenders]
    report = Report(
        name="pipeline",
        command=command,
        machine=machine,
        settings={**plan.as_dict(), "runs": runs, "redis_bytes_per_queued_order": queued},
        tables=tables(plan, rows),
        notes=notes(plan, done, queued),
        runs=done,
    )

    def draw(path: Path) -> None:
        from ingest.bench.pipeline.charts import draw_comparison  # noqa: PLC0415  Matplotlib takes half a second

        draw_comparison(plan, rows, path)

    return Result(report, draw)


def run_sweep(plan: Plan, sweep: Sweep, *, runs: int, servers: Servers, command: str) -> Result:
    """Run the service at each value; report a row each, the medians of `runs` runs."""
    machine = Machine.here()
    with session(servers) as on:

        def run(case: tuple[Any, Plan]) -> Figures:
            value, at_value = case
            return {"swept": value, **on.run(at_value, SERVICE)}

        done = run_trials([*zip(sweep.values, sweep.plans, strict=True)] * runs, run, _line)
    rows = [medians([run for run in done if run["swept"] == value]) for value in sweep.values]
    knee = sweep.knee([row["orders_per_s"] or 0.0 for row in rows])
    report = Report(
        name="pipeline-sweep",
        command=command,
        machine=machine,
        settings={**plan.as_dict(), "runs": runs, "sweep": sweep.option, "values": list(sweep.values), "knee": knee},
        tables=[sweep_table(sweep, plan, rows)],
        notes=sweep_notes(sweep, plan, done, knee),
        runs=done,
    )

    def draw(path: Path) -> None:
        from ingest.bench.pipeline.curve import draw_curve  # noqa: PLC0415  as above

        draw_curve(sweep, rows, knee, sweep.latency_kind(plan), path)

    return Result(report, draw)


def in_turn(contenders: Sequence[str], runs: int) -> list[str]:
    """Each of them `runs` times, alternating in direction: slow changes of the machine affect all of them alike."""
    return [name for number in range(runs) for name in (contenders if number % 2 == 0 else contenders[::-1])]


def _line(_: object, figures: Figures) -> str:
    """One run in a line, as progress."""
    rate, ratio = figures["orders_per_s"], figures["ratio_to_ideal"]
    own = figures["own_cpu_us_per_order_without_startup"]
    parts = [
        f"{figures['contender']}: {figures['stored']:,} stored in {figures['seconds'] or 0:.2f} s",
        f"{rate or 0:,.0f}/s",
        *([f"{ratio:.3f} x ideal"] if ratio else []),
        f"{own:,.0f} us CPU per order",
        f"lost {figures['lost']}",
        f"load before {figures['load_before']}, others' CPU {figures['other_busy_cores']} cores",
    ]
    return ", ".join(parts)
