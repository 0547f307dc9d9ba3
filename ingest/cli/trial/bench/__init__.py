"""`ingest bench`: measures the service, and the alternatives to it. This module has the benches with few options."""

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from ingest.bench.backpressure.plan import Plan as BackpressurePlan
from ingest.bench.http.plan import Plan as HttpPlan
from ingest.cli.field_options import with_fields_of
from ingest.cli.trial.bench.output import AsJson, Output, publish

COMMANDS = ("pipeline", "patterns", "backpressure", "select", "adaptive", "http")


def bench() -> None:
    """Measure the service on real servers.

    It measures throughput, CPU, memory, latency and loss.

    Examples:
    `ingest bench pipeline --vs bare --runs 5` measures the service, and the least code that does the same work.

    `ingest bench patterns --output results` writes a table, JSON and a chart into a directory.

    Every bench needs the extra 'bench', starts its own servers, and removes them at the end.
    """


@with_fields_of(BackpressurePlan)
def backpressure(
    *,
    plan: BackpressurePlan,
    latency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOW-HIGH", help="Milliseconds that a call takes. Repeatable.", show_default="100-200 and 100-110"
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compare five ways to limit calls in flight.

    It reports their time and memory. One of them is the service's own.

    The calls are simulated: they sleep. No server is needed. Expected duration and progress go to stderr.

    Examples:
    `ingest bench backpressure` makes 100,000 calls in each way, twice, for two ranges of latencies: about 10 minutes.

    `ingest bench backpressure --calls 20000 --latency 100-200` takes about a minute.

    `ingest bench backpressure --output results` also writes a table, JSON and a chart into a directory.
    """
    from ingest.bench.backpressure.calls import Latency
    from ingest.bench.backpressure.compare import run

    try:
        latencies = [Latency.parse(text) for text in dict.fromkeys(latency or ())]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--latency") from error
    publish(partial(run, replace(plan, latencies=latencies or plan.latencies)), output, as_json=as_json)


@with_fields_of(HttpPlan)
def http(
    *,
    plan: HttpPlan,
    case: Annotated[
        list[str] | None,
        typer.Option(
            help="One to measure: bare, gunicorn, post, post-fsync, ndjson, get, put or delete. Repeatable. [all]",
            metavar="CASE",
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compare the HTTP API with a minimal handler.

    It reports requests per second, latency, CPU and memory of `ingest api` and of an aiohttp handler.

    That handler runs directly, as the service does, and under gunicorn with as many workers. All of them get the same requests
    from the same clients on this machine, one server after the other. Expected duration and progress go to stderr.

    Examples:
    `ingest bench http` takes about 4 minutes.

    `ingest bench http --case bare --case post --seconds 5` compares a POST with a handler that only answers.

    `ingest bench http --output results` also writes tables, JSON and charts into a directory.
    """
    from ingest.bench.http.compare import CASES, run

    if unknown := next((name for name in case or () if name not in CASES), None):
        raise typer.BadParameter(f"{unknown!r} is none of {', '.join(CASES)}", param_hint="--case")
    chosen = tuple(name for name in CASES if not case or name in case)
    publish(partial(run, replace(plan, cases=chosen)), output, as_json=as_json)
