"""`ingest bench profile`: the CPU time of a delivery, stage by stage."""

from functools import partial
from typing import Annotated, Literal

import typer

from ingest.cli.bench.output import AsJson, Output, publish


def profile(
    *,
    orders: Annotated[int, typer.Option(help="Orders to enqueue.", min=1, max=9_999_999)] = 40_000,
    latency: Annotated[str, typer.Option(help="Of the external API, as `ingest upstream` takes it.")] = "0-0.002",
    in_flight: Annotated[int, typer.Option(help="Orders in flight.", min=1, max=10_000)] = 200,
    tls: Annotated[bool, typer.Option("--tls/--no-tls", help="The external API over HTTPS.")] = False,
    client: Annotated[
        Literal["native", "aiohttp"] | None,
        typer.Option(help="INGEST_UPSTREAM_CLIENT of the worker.", show_default=False),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Run one worker process on real servers, and report where the CPU time of a delivery goes, stage by stage.

    Samples what the process executes each time it has used a few milliseconds of CPU: 40,000 orders give about a
    thousand samples.

    Examples:
    `ingest bench profile` takes about half a minute.

    `ingest bench profile --client aiohttp` is the same with another HTTP client; `--tls`, over HTTPS.
    """
    from ingest.bench.pipeline.plan import Plan
    from ingest.bench.profile.compare import run

    plan = Plan(orders=orders, latency=latency, in_flight=in_flight, processes=1, tls=tls, client=client)
    publish(partial(run, plan), output, as_json=as_json)
