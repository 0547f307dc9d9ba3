"""Measures orders of source B from enqueue to commit while source A fails, with both sources in the same worker processes."""

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from ingest.bench.isolation.faults import FAULTS, FILES, Fault
from ingest.bench.pipeline.latency import quantile
from ingest.bench.pipeline.load import Announced, Load
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.stage import Stage, stage
from ingest.bench.trial import announce, run_trials, wait_until_done
from ingest.domain.source_name import queue_of
from ingest.lab.endpoints import ApiControl
from ingest.lab.programs import Program
from ingest.lab.simulated_api import RunningApi
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

_FAILING, _MEASURED = "a", "b"
_NOTES = "notes.txt"
# Seconds until the failure has its effect: the slots of A are taken, or its circuit is open.
_UNTIL_FAILING = 4.0
# Seconds of a run before and after the load.
_AROUND = 12.0
_COLUMNS = (
    Column("fault", "source A"),
    Column("failing_requests", "requests to A"),
    Column("failing_stored", "orders of A stored"),
    Column("orders", "orders of B"),
    Column("p50_ms", "p50 (ms)"),
    Column("p99_ms", "p99 (ms)"),
    Column("longest_ms", "longest (ms)"),
    Column("p99_more_ms", "p99 more than alone (ms)"),
    Column("p99_more_percent", "more (%)"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of the bench.

    Attributes:
        faults: names of the failures, from `FAULTS`.
        rate: orders of B per second.
        seconds: duration of each measurement.
        processes: worker processes.
        concurrency: orders in flight of both sources in each process.
        latency: of the API of B.
        backlog: queued orders of A in the cases `backlog` and `fast`.
        seed: of the arrivals.
    """

    faults: Sequence[str]
    rate: float
    seconds: float
    processes: int
    concurrency: int
    latency: str
    backlog: int
    seed: int = 1


def run(plan: Plan) -> Findings:
    """Measure each failure, and B alone before and after them.

    Raises:
        LabFailed: a part ended unexpectedly, or orders of B were not stored.
    """
    names = ["alone", *(name for name in plan.faults if name != "alone"), "alone"]
    announce(f"{len(names)} runs", len(names) * (plan.seconds + _AROUND))
    with stage(postgres_settings={"track_commit_timestamp": "on"}) as on:
        on.migrate()
        bench = _Bench(on, plan)
        runs = run_trials(names, bench.measure, lambda name, row: f"{name}: p99 {row['p99_ms']:.0f} ms")
    alone = min(runs[0]["p99_ms"], runs[-1]["p99_ms"])
    rows = [
        {
            **row,
            "p99_more_ms": row["p99_ms"] - alone,
            "p99_more_percent": 100 * (row["p99_ms"] / alone - 1),
        }
        for row in runs
    ]
    return Findings(
        name="isolation",
        settings=asdict(plan),
        notes=[
            (
                f"Source B gets {plan.rate:g} orders per second for {plan.seconds:g} s. {plan.processes} processes run both sources, with "
                f"{plan.concurrency} orders in flight each. Times are from enqueue to commit. 'Alone' is the lower one of the first and the last run."
            )
        ],
        runs=runs,
        charts=[],
        tables=[Table("Orders of source B while source A fails", _COLUMNS, rows)],
    )


class _Bench:
    def __init__(self, on: Stage, plan: Plan) -> None:
        self._on = on
        self._plan = plan
        self._failing, self._measured = on.api(), on.api("--latency", plan.latency)
        self._number = 0
        for name, text in FILES.items():
            (on.home / name).write_text(text)

    def measure(self, name: str) -> Row:
        """Run one failure, and return the times of B."""
        fault, plan, on = self._fault(name), self._plan, self._on
        self._number += 1
        # Each run has a new queue and new IDs, so that the last run leaves it nothing.
        stream = f"{on.stream}{self._number}"
        self._write_sources(fault)
        on.commands.configure(
            {
                "INGEST_SOURCES": str(on.home / "sources.toml"),
                "INGEST_STREAM": stream,
                "INGEST_CONCURRENCY": str(plan.concurrency),
                "PYTHONPATH": str(on.home),
            }
        )
        on.sql("TRUNCATE orders")
        failing = [f"A{self._number}-{number}" for number in range(fault.orders)]
        asyncio.run(_enqueue(on.redis_url, queue_of(stream, _FAILING), failing))
        ids = [f"B{self._number}-{number}" for number in range(int(plan.rate * plan.seconds))]
        load = self._load(queue_of(stream, _MEASURED), ids)
        worker = on.commands.start("worker", "--processes", str(plan.processes))
        try:
            time.sleep(_UNTIL_FAILING)
            load.send_line("start")
            load.read_reply(Announced)
            wait_until_done(lambda: self._missing(len(ids)), name="source B", every=0.1)
        finally:
            worker.stop(60)
        times = self._times()
        return {
            "fault": fault.title.format(orders=f"{fault.orders:,}"),
            "failing_requests": self._failing.stats().requests,
            "failing_stored": int(on.sql("SELECT count(*) FROM orders WHERE order_id LIKE 'A%'")[0][0]),
            "orders": len(times),
            "p50_ms": 1000 * (quantile(times, 0.5) or 0.0),
            "p99_ms": 1000 * (quantile(times, 0.99) or 0.0),
            "longest_ms": 1000 * max(times),
        }

    def _fault(self, name: str) -> Fault:
        fault = FAULTS[name]
        return replace(fault, orders=self._plan.backlog) if name in ("backlog", "fast") else fault

    def _write_sources(self, fault: Fault) -> None:
        with closing(ApiControl(self._failing.url)) as control:
            control.request("PUT", "/behaviour", b'{"any_id": true}')
            control.behave(**fault.behaviour)
            control.reset()
        url = _refusing(self._failing) if fault.is_refused else self._failing.url
        text = f'[sources.{_FAILING}]\n{fault.section}\nupstream.url = "{url}"\n\n'
        text += f'[sources.{_MEASURED}]\nupstream.url = "{self._measured.url}"\n'
        (self._on.home / "sources.toml").write_text(text)

    def _load(self, stream: str, ids: Sequence[str]) -> Program:
        load = self._on.program("ingest.bench.pipeline.load", INGEST_REDIS_URL=self._on.redis_url)
        load.send(Load(self._on.write_ids(ids), _NOTES, stream, self._plan.rate, self._plan.seed))
        if load.read_line() != "ready":
            raise load.failed("did not start")
        return load

    def _missing(self, wanted: int) -> str | None:
        stored = int(self._on.sql("SELECT count(*) FROM orders WHERE order_id LIKE 'B%'")[0][0])
        return None if stored >= wanted else f"{stored:,} of {wanted:,} orders stored"

    def _times(self) -> list[float]:
        """The seconds from enqueue to commit of each order of B, sorted."""
        lines = (line.split() for line in (self._on.home / _NOTES).read_text().splitlines())
        sent = {order_id: float(moment) for order_id, _, moment in lines}
        rows = self._on.sql(
            "SELECT order_id, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 FROM orders WHERE order_id LIKE 'B%'"
        )
        return sorted(committed - sent[order_id] for order_id, committed in rows)


async def _enqueue(redis_url: str, stream: str, ids: Sequence[str]) -> None:
    async with control_client(redis_url) as client:
        await Producer(client, stream).enqueue(ids)


def _refusing(api: RunningApi) -> str:
    """The URL of the API with a port on which nothing listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    scheme, _, rest = api.url.partition("://")
    return f"{scheme}://127.0.0.1:{port}/{rest.partition('/')[2]}"
