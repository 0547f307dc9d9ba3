"""`ingest bench patterns`: compares the service with usual ways of doing its work."""

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from ingest.bench.patterns.plan import Pattern, Plan
from ingest.cli.field_options import with_fields_of
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.trial.bench.output import AsJson, Output, publish
from ingest.telemetry.logs import setup_logs


@with_fields_of(Plan)
def patterns(
    *,
    plan: Plan,
    only: Annotated[
        list[Pattern] | None,
        typer.Option(help=f"One to run, of {', '.join(Pattern)}; may be repeated. [all]", metavar="PATTERN"),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Fetch and store the same orders in six ways.

    It reports time, memory, errors, and the loss when a process is killed.

    Five are ways that tutorials show: asyncio.gather without and with a semaphore, a pool of processes, threads, and
    plain Redis Streams workers. The sixth is `ingest worker`. All of them work on the same servers and the same
    simulated API, one after the other.

    Examples:
    `ingest bench patterns --orders 1000` takes about two minutes.

    `ingest bench patterns --output results` takes about 20 minutes, and writes tables, JSON and a chart.

    `ingest bench patterns --only semaphore --only service --no-kill` compares two.

    `ingest bench patterns --throttle 500 --no-kill` makes the API reject more than 500 concurrent requests.
    """
    from ingest.bench.patterns.compare import run

    setup_logs("console", "info")
    chosen = tuple(pattern for pattern in Pattern if not only or pattern in only)
    publish(partial(run, replace(plan, patterns=chosen), ProgressDisplay), output, as_json=as_json)
