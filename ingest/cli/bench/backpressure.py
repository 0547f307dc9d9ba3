"""`ingest bench backpressure`: ways to keep a fixed number of calls in flight."""

from functools import partial
from typing import Annotated

import typer

from ingest.cli.bench.output import AsJson, Output, publish

_LATENCIES = ("100-200", "100-110")


def backpressure(
    *,
    calls: Annotated[int, typer.Option(help="Calls to make in each way.", min=1, max=10_000_000)] = 100_000,
    limit: Annotated[int, typer.Option(help="Calls in flight, at most.", min=1, max=100_000)] = 500,
    latency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOW-HIGH", help="Milliseconds that a call takes. Repeatable.", show_default="100-200 and 100-110"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the latencies, which are the same for every way.")] = 1,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Time and memory of five ways to make many calls with a fixed number in flight, ours among them.

    The calls are simulated: they sleep. No server is needed. Expected duration and progress go to stderr.

    Examples:
    `ingest bench backpressure` makes 100,000 calls in each way, twice, for two ranges of latencies: about 10 minutes.

    `ingest bench backpressure --calls 20000 --latency 100-200` takes about a minute.

    `ingest bench backpressure --output results` also writes a table, JSON and a chart into a directory.
    """
    from ingest.bench.backpressure.calls import Latency
    from ingest.bench.backpressure.compare import Plan, run

    try:
        latencies = [Latency.parse(text) for text in dict.fromkeys(latency or _LATENCIES)]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--latency") from error
    publish(partial(run, Plan(latencies, calls, limit, seed)), output, as_json=as_json)
