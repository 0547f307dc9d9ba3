"""Runs the service once with a sampler, and reports the CPU time of each stage of a delivery."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from ingest.bench.errors import BenchFailed
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.session import Case, session
from ingest.bench.profile.contender import sampled
from ingest.bench.profile.samples import count_by_stage, shares
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.stage import EMBEDDED

_CONTENDER = "service"
_COLUMNS = (
    Column("stage", "stage"),
    Column("share_percent", "share, %", 1),
    Column("cpu_us_per_order", "CPU, us/order", 1),
)


def run(plan: Plan) -> Findings:
    """Run the service, and report the stages.

    Raises:
        BenchFailed: not all orders were stored, or there is no sample.
    """
    with TemporaryDirectory(prefix="ingest-profile-") as directory:
        samples = Path(directory)
        with session(EMBEDDED, {_CONTENDER: sampled(samples)}) as on:
            _, (figures,) = on.run([Case(_CONTENDER, plan)], 1)
        if figures["stored"] != plan.orders:
            raise BenchFailed(f"{figures['stored']:,} of {plan.orders:,} orders were stored")
        counts = count_by_stage(samples)
    cpu = figures["own_cpu_us_per_order_without_startup"]
    rows: list[Row] = [
        {"stage": stage, "share_percent": share, "cpu_us_per_order": cpu * share / 100, "samples": counts[stage]}
        for stage, share in shares(counts).items()
    ]
    return Findings(
        name="profile",
        settings=asdict(plan),
        tables=[Table("One delivery, stage by stage", _COLUMNS, rows)],
        charts=[],
        notes=(
            f"{sum(counts.values()):,} samples of CPU time from the first delivery on, which other programs do not affect.",
            f"CPU per order is the share of {cpu:,.0f} us, which all processes of the service used after start-up.",
            (
                "A stage includes the functions that it calls. Compiled code, including the event loop's, counts for the "
                "Python code that is executed next."
            ),
        ),
        runs=[figures],
    )
