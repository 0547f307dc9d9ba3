"""Runs real workers on an API whose capacity changes, and measures how soon they use the new capacity."""

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Self

from ingest import SyncProducer
from ingest.bench.adaptive.plan import LivePlan
from ingest.bench.contender import ServiceContender
from ingest.bench.errors import BenchFailed
from ingest.bench.panels import OURS, WARN, Chart, Lines, Series
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.stage import Stage, stage
from ingest.bench.trial import announce, report_progress
from ingest.lab.endpoints import ApiControl

# A throughput is reached when two consecutive seconds have this share of the API's limit.
ENOUGH = 0.85
# Seconds after a change until it has to be reached.
WITHIN = 10
_BATCH = 1_000
# Seconds between numbers on the axis of the chart.
_TICK = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the API's counters: documents, other responses and requests in progress."""

    at: float
    documents: int
    errors: int
    in_flight: int

    @classmethod
    def take(cls, api: ApiControl) -> Self:
        """Take a sample.

        Raises:
            BenchFailed: the API does not respond.
        """
        stats = api.stats()
        if stats is None:
            raise BenchFailed("the simulated API does not respond")
        documents = stats.by_status.get("200", 0)
        return cls(time.monotonic(), documents, sum(stats.by_status.values()) - documents, stats.concurrency)


@dataclass(frozen=True, slots=True)
class PhaseFound:
    """The results for one capacity.

    Attributes:
        capacity: capacity of the API.
        allowed: orders per second that the API can process.
        reached_after: seconds until the throughput was `ENOUGH` of `allowed`, or None if it never was.
        throughput: orders per second from `WITHIN` seconds after the change on.
        errors: share of all responses that were not a document.
        in_flight: requests at the API at the end.
        each: orders per second in each second.
    """

    capacity: int
    allowed: float
    reached_after: int | None
    throughput: float
    errors: float
    in_flight: int
    each: Sequence[float]


def run(plan: LivePlan) -> list[PhaseFound]:
    """Run all phases. The first phase begins when the workers have sent their first requests.

    Raises:
        LabFailed: a process does not start, or ends unexpectedly.
    """
    announce(f"{len(plan.capacities)} capacities", plan.seconds * len(plan.capacities) + 30)
    with stage() as on:
        on.migrate()
        low, high = plan.latency
        capacity = ("--capacity", str(plan.capacities[0]), "--capacity-queue", str(plan.queue))
        api = on.api("--latency", f"{low}-{high}", *capacity)
        _enqueue(on, plan.orders())
        settings = {
            "INGEST_UPSTREAM_ADAPTIVE": "on" if plan.adaptive else "off",
            "INGEST_PROCESSES": str(plan.processes),
            "INGEST_CONCURRENCY": str(plan.concurrency),
            "INGEST_UPSTREAM_CLIENT": plan.client,
            "INGEST_LOG_LEVEL": "warning",
        }
        workers = ServiceContender(on, api.url, settings)
        workers.start()
        with closing(ApiControl(api.url)) as control:
            while not Sample.take(control).in_flight:
                workers.check()
                time.sleep(0.05)
            found = [_phase(plan, control, workers, capacity) for capacity in plan.capacities]
        workers.stop()
        return found


def _enqueue(on: Stage, count: int) -> None:
    with SyncProducer(on.redis_url, on.stream) as producer:
        for start in range(0, count, _BATCH):
            producer.enqueue([str(number) for number in range(start, min(start + _BATCH, count))])


def _phase(plan: LivePlan, api: ApiControl, workers: ServiceContender, capacity: int) -> PhaseFound:
    if not api.behave(capacity=capacity):
        raise BenchFailed("the simulated API does not respond")
    samples = [Sample.take(api)]
    while len(samples) <= plan.seconds:
        time.sleep(max(0.0, samples[0].at + len(samples) - time.monotonic()))
        samples.append(Sample.take(api))
    workers.check()
    found = found_in(plan, capacity, samples)
    reached = "never" if found.reached_after is None else f"after {found.reached_after} s"
    report_progress(
        f"capacity {capacity}: {found.throughput:.0f} of {found.allowed:.0f} orders/s, reached {reached}, "
        f"{found.errors:.2%} errors, {found.in_flight} in flight at the end"
    )
    return found


def found_in(plan: LivePlan, capacity: int, samples: Sequence[Sample]) -> PhaseFound:
    """The results of one phase, from samples of each second."""
    first, late, last = samples[0], samples[min(WITHIN, len(samples) - 2)], samples[-1]
    allowed = plan.allowed(capacity)
    pairs = zip(samples, samples[2:], strict=False)
    enough = (number for number, (one, other) in enumerate(pairs, 2) if _rate(one, other) >= ENOUGH * allowed)
    answers = last.documents + last.errors - first.documents - first.errors
    return PhaseFound(
        capacity=capacity,
        allowed=allowed,
        reached_after=next(enough, None),
        throughput=_rate(late, last),
        errors=(last.errors - first.errors) / max(1, answers),
        in_flight=last.in_flight,
        each=[_rate(one, other) for one, other in pairwise(samples)],
    )


def _rate(one: Sample, other: Sample) -> float:
    return (other.documents - one.documents) / (other.at - one.at)


_COLUMNS = (
    Column("capacity", "capacity"),
    Column("allowed", "allowed (orders/s)"),
    Column("throughput", f"from {WITHIN} s on (orders/s)"),
    Column("share", "of the API's limit (%)", 1),
    Column("reached_after", f"{ENOUGH:.0%} reached after (s)"),
    Column("errors", "errors (%)", 2),
    Column("in_flight", "in flight at the end"),
)


def measure(plan: LivePlan) -> Findings:
    """Run the plan, and report a table and a chart of the throughput."""
    found = run(plan)
    rows: list[Row] = [
        {
            "capacity": phase.capacity,
            "allowed": phase.allowed,
            "throughput": phase.throughput,
            "share": 100 * phase.throughput / phase.allowed,
            "reached_after": phase.reached_after,
            "errors": 100 * phase.errors,
            "in_flight": phase.in_flight,
        }
        for phase in found
    ]
    return Findings(
        name="adaptive-live",
        settings=asdict(plan),
        tables=[Table("", _COLUMNS, rows)],
        charts=[_chart(plan, found)],
        notes=(
            f"Load of the machine at the end: {os.getloadavg()[0]:.1f}.",
            f"{plan.processes} processes of at most {plan.concurrency} orders in flight each.",
        ),
        runs=[asdict(phase) for phase in found],
    )


def _chart(plan: LivePlan, found: Sequence[PhaseFound]) -> Chart:
    each = [rate for phase in found for rate in phase.each]
    allowed = [phase.allowed for phase in found for _ in range(plan.seconds)]
    panel = Lines(
        label="orders/s",
        positions=[(at, str(at) if at % _TICK == 0 else "") for at in range(len(each))],
        series=[Series("throughput", each, OURS, ","), Series("allowed", allowed, WARN)],
        limits=(0, 1.2 * max([*each, *allowed])),
        below="seconds",
    )
    return Chart("Throughput while the API's capacity changes", [[panel]], (8, 4.5))
