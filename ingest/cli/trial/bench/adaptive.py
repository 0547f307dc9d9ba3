"""`ingest bench adaptive`: limits that find the capacity of an API."""

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from ingest.bench.adaptive.plan import LivePlan
from ingest.cli.field_options import with_fields_of
from ingest.cli.invocation import require
from ingest.cli.trial.bench.output import AsJson, Output, publish


@with_fields_of(LivePlan)
def adaptive(
    context: typer.Context,
    *,
    live: Annotated[bool, typer.Option("--live", help="Real workers, and an API whose capacity changes.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    plan: LivePlan,
    latency: Annotated[
        str, typer.Option(metavar="LOW-HIGH", help="With --live: milliseconds that a request takes.")
    ] = "400-600",
    fixed: Annotated[bool, typer.Option("--fixed", help="With --live: with INGEST_UPSTREAM_ADAPTIVE=off.")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compare the adaptive limit with other limits.

    These are the best fixed limit, and the formulas of Netflix's Gradient2 and Vector's ARC.

    In virtual time, with the same seed the same figures. With --live, real workers, servers and HTTP.

    Examples:
    `ingest bench adaptive` compares five limits in five scenarios, in virtual time: about a minute.

    `ingest bench adaptive --live` runs real workers while the API's capacity goes from 400 to 50 and back: about
    two minutes.

    `ingest bench adaptive --live --queue 100` has the API refuse what cannot wait, with a 503.
    """
    if live:
        from ingest.bench.adaptive.live import measure
        from ingest.bench.backpressure.calls import Latency

        try:
            parsed = Latency.parse(latency)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--latency") from error
        plan = replace(
            plan,
            latency=(parsed.low / 1000, parsed.high / 1000),
            concurrency=500 // plan.processes,
            adaptive=not fixed,
        )
        publish(partial(measure, plan), output, as_json=as_json)
        return
    from ingest.bench.adaptive.score import score

    require(context, "--live", "seconds", "latency", "queue", "processes", "client", "fixed")

    publish(partial(score, seed), output, as_json=as_json)
