"""Runs contenders, or the values of a sweep, on the same servers, and reports the medians."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ingest.bench.pipeline.figures import Figures, medians
from ingest.bench.pipeline.plan import SERVICE, Plan
from ingest.bench.pipeline.run import Run
from ingest.bench.pipeline.sweep import Sweep, sweep_chart, sweep_notes, sweep_table
from ingest.bench.pipeline.tables import comparison_chart, notes, tables
from ingest.bench.report import Findings
from ingest.bench.stage import FOREIGN_STREAM, Servers, Stage, stage
from ingest.bench.trial import run_trials, say
from ingest.lab.session import order_ids
from ingest.lab.simulated_api import RunningApi
from ingest.lab.upstream.samples import sample_orders

_POSTGRES = {"track_commit_timestamp": "on"}

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Case:
    """What gets a row in the table: a contender, or the service at a swept value."""

    contender: str
    plan: Plan
    swept: Any = None


class Session:
    """Servers that several runs share, one after the other."""

    def __init__(self, on: Stage) -> None:
        self._stage = on
        self._documents = sample_orders()
        self._api: RunningApi | None = None
        self._api_options: list[str] = []

    def run(self, cases: Sequence[Case], runs: int) -> tuple[list[Figures], list[Figures]]:
        """Run each case several times, in turn; return the figures of all runs, and for each case the medians."""
        order = in_turn(cases, runs)
        done = run_trials(order, self._run_once, _line)
        return done, [medians([run for of, run in zip(order, done, strict=True) if of is case]) for case in cases]

    def bytes_per_queued_order(self, plan: Plan) -> float:
        """What an order takes in Redis while it waits, with all of the plan's orders queued."""
        self._stage.clear()
        before = self._used_memory()
        self._stage.enqueue(order_ids(plan.orders, self._documents, "BENCH"))
        return round((self._used_memory() - before) / plan.orders, 1)

    def _run_once(self, case: Case) -> Figures:
        api = self._api_for(case.plan)
        figures = Run(self._stage, api, case.plan, case.contender, self._documents).measure()
        return figures if case.swept is None else {"swept": case.swept, **figures}

    def _used_memory(self) -> int:
        said: Any = self._stage.redis.info("memory")
        return int(said["used_memory"])

    def _api_for(self, plan: Plan) -> RunningApi:
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


def compare(plan: Plan, rivals: Sequence[str], *, runs: int, servers: Servers) -> Findings:
    """Run the service, and each rival beside it, in turn; report the medians.

    Args:
        plan: for all of them.
        rivals: names of other contenders.
        runs: of each.
        servers: where.
    """
    with session(servers) as on:
        queued = None if plan.rate else on.bytes_per_queued_order(plan)
        done, rows = on.run([Case(name, plan) for name in (SERVICE, *rivals)], runs)
    return Findings(
        name="pipeline",
        settings={**asdict(plan), "runs": runs, "redis_bytes_per_queued_order": queued},
        tables=tables(plan, rows),
        charts=[comparison_chart(plan, rows)],
        notes=notes(plan, done, queued),
        runs=done,
    )


def run_sweep(plan: Plan, sweep: Sweep, *, runs: int, servers: Servers) -> Findings:
    """Run the service at each value; report a row each, the medians of `runs` runs."""
    cases = [Case(SERVICE, at_value, value) for value, at_value in zip(sweep.values, sweep.plans, strict=True)]
    with session(servers) as on:
        done, rows = on.run(cases, runs)
    knee = sweep.knee([row["orders_per_s"] or 0.0 for row in rows])
    return Findings(
        name="pipeline-sweep",
        settings={**asdict(plan), "runs": runs, "sweep": sweep.option, "values": list(sweep.values), "knee": knee},
        tables=[sweep_table(sweep, plan, rows)],
        charts=[sweep_chart(sweep, plan, rows, knee)],
        notes=sweep_notes(sweep, plan, done, knee),
        runs=done,
    )


def in_turn(cases: Sequence[Item], runs: int) -> list[Item]:
    """Each of them `runs` times, alternating in direction: slow changes of the machine affect all of them alike."""
    return [case for number in range(runs) for case in (cases if number % 2 == 0 else cases[::-1])]


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
