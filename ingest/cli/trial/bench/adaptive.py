"""`ingest bench adaptive`: limits that find the capacity of an API."""

from functools import partial
from typing import Annotated

import typer

from ingest.cli.invocation import require
from ingest.cli.trial.bench.output import AsJson, Output, publish


def adaptive(  # noqa: PLR0913  each parameter is one option
    context: typer.Context,
    *,
    live: Annotated[bool, typer.Option("--live", help="Real workers, and an API whose capacity changes.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    seconds: Annotated[int, typer.Option(help="With --live: seconds of each capacity.", min=12)] = 25,
    latency: Annotated[
        str, typer.Option(metavar="LOW-HIGH", help="With --live: milliseconds that a request takes.")
    ] = "400-600",
    queue: Annotated[int, typer.Option(help="With --live: requests that may wait at the API.", min=0)] = 1_000,
    processes: Annotated[int, typer.Option(help="With --live: worker processes.", min=1, max=64)] = 2,
    client: Annotated[
        str, typer.Option(metavar="native|aiohttp", help="With --live: the workers' HTTP client.")
    ] = "aiohttp",
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
        from ingest.bench.adaptive.live import LivePlan, measure
        from ingest.bench.backpressure.calls import Latency

        try:
            parsed = Latency.parse(latency)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--latency") from error
        plan = LivePlan(
            seconds=seconds,
            latency=(parsed.low / 1000, parsed.high / 1000),
            queue=queue,
            processes=processes,
            concurrency=500 // processes,
            adaptive=not fixed,
            client=client,
        )
        publish(partial(measure, plan), output, as_json=as_json)
        return
    from ingest.bench.adaptive.score import score

    require(context, "--live", "seconds", "latency", "queue", "processes", "client", "fixed")

    publish(partial(score, seed), output, as_json=as_json)
