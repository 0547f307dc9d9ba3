"""Runs cases on the same servers in sequence, each in the same way.

clear ──▶ queue orders ──▶ start the contender ──▶ (sample until the queue is empty) ──▶ stop ──▶ reconcile

With a rate, orders arrive when the contender is ready.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ingest.bench.pipeline.contenders import CONTENDERS, Contend
from ingest.bench.pipeline.figures import (
    Figures,
    Sent,
    cost,
    latencies,
    medians,
    reconciled,
    recovery,
    speed,
    surroundings,
)
from ingest.bench.pipeline.load import Announced, Load
from ingest.bench.pipeline.outcome import find_outcome
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.readings import Readings
from ingest.bench.pipeline.run import observe
from ingest.bench.stage import FOREIGN_STREAM, Servers, Stage, stage
from ingest.bench.trial import report_progress, run_trials
from ingest.lab.programs import Program
from ingest.lab.session import order_ids
from ingest.lab.simulated_api import RunningApi
from ingest.lab.upstream.samples import sample_orders

_POSTGRES = {"track_commit_timestamp": "on"}
_NOTES = "notes.txt"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Case:
    """A row in the table, which is a contender or the service at a swept value."""

    contender: str
    plan: Plan
    swept: Any = None


@contextmanager
def session(servers: Servers, contenders: Mapping[str, Contend] = CONTENDERS) -> "Iterator[Session]":
    """Start the servers with tables. `contenders` are keyed by the names in cases."""
    if None in (servers.redis_url, servers.postgres_dsn):
        report_progress("starting PostgreSQL and Redis ...")
    if servers.redis_url is not None:
        report_progress(f"the queue '{FOREIGN_STREAM}' of the given Redis is emptied before each run")
    with stage(servers, postgres_settings=_POSTGRES) as on:
        on.migrate()
        yield Session(on, contenders)


class Session:
    """Servers that several runs share in sequence."""

    def __init__(self, on: Stage, contenders: Mapping[str, Contend]) -> None:
        self._stage = on
        self._contenders = contenders
        self._documents = sample_orders()
        self._api: RunningApi | None = None
        self._api_options: tuple[list[str], bool] | None = None

    def run(self, cases: Sequence[Case], runs: int) -> tuple[list[Figures], list[Figures]]:
        """Run each case several times in turn, and return the figures of all runs and the medians for each case."""
        order = in_turn(cases, runs)
        done = run_trials(order, self._run_once, _line)
        return done, [medians([run for of, run in zip(order, done, strict=True) if of is case]) for case in cases]

    def _run_once(self, case: Case) -> Figures:
        """Run a case.

        Raises:
            LabFailed: a part ended unexpectedly, or makes no progress.
        """
        plan, stage, api = case.plan, self._stage, self._api_for(case.plan)
        stage.clear()
        api.reset()
        load_before = os.getloadavg()[0]
        ids = order_ids(plan.orders, self._documents, "BENCH")
        empty = self._used_memory()
        load = self._load(plan, ids)
        queued = None if load else round((self._used_memory() - empty) / plan.orders, 1)
        with closing(self._contenders[case.contender](stage, plan, api)) as running:
            seen = observe(plan, running, Readings(stage, running, api), load)
        announced = load.read_reply(Announced) if load else Announced(0, 0.0)
        used = replace(seen.used, reads=seen.used.reads - announced.batches)
        stats, outcome = api.stats(), find_outcome(stage, running.group, ids, self._documents)
        return {
            **({} if case.swept is None else {"swept": case.swept}),
            "contender": case.contender,
            "in_flight": plan.in_flight,
            "api_scheme": api.url.partition(":")[0],
            **speed(plan, stats, outcome),
            **cost(seen.startup_cpu, used, len(outcome.rows)),
            "peak_pss_mb": round(seen.peak_memory / 1e6, 1),
            **latencies(plan, self._sent() if load else {}, outcome),
            **reconciled(stats, outcome),
            "exit_codes": seen.exit_codes,
            **({} if seen.killed_at is None else recovery(seen.killed_at, stats, outcome)),
            **surroundings(used, announced.cpu_seconds, seen.seconds),
            "redis_bytes_per_queued_order": queued,
            "load_before": round(load_before, 2),
        }

    def _load(self, plan: Plan, ids: Sequence[str]) -> Program | None:
        """Announce all orders, or return a program that is ready to announce them at the plan's rate."""
        stage = self._stage
        if not plan.rate:
            stage.enqueue(ids)
            return None
        load = stage.program("ingest.bench.pipeline.load", INGEST_REDIS_URL=stage.redis_url)
        load.send(Load(stage.write_ids(ids), _NOTES, stage.stream, plan.rate, plan.seed))
        if load.read_line() != "ready":
            raise load.failed("did not start")
        return load

    def _sent(self) -> Sent:
        lines = (line.split() for line in (self._stage.home / _NOTES).read_text().splitlines())
        return {order_id: (float(planned), float(sent)) for order_id, planned, sent in lines}

    def _used_memory(self) -> int:
        said: Any = self._stage.redis.info("memory")
        return int(said["used_memory"])

    def _api_for(self, plan: Plan) -> RunningApi:
        options = plan.api_options(), plan.tls
        if self._api is None or options != self._api_options:
            if self._api is not None:
                self._api.stop()
            self._api, self._api_options = self._stage.api(*plan.api_options(), tls=plan.tls), options
        return self._api


def in_turn(cases: Sequence[Item], runs: int) -> list[Item]:
    """All cases `runs` times in alternating direction, so that slow changes of the machine affect all cases."""
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
