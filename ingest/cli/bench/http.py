"""`ingest bench http`: the HTTP API under many connections."""

from functools import partial
from typing import Annotated

import typer

from ingest.cli.bench.output import AsJson, Output, publish


def http(
    *,
    clients: Annotated[int, typer.Option(help="Connections.", min=1, max=5_000)] = 200,
    processes: Annotated[int, typer.Option(help="Processes of each server.", min=1, max=64)] = 1,
    seconds: Annotated[float, typer.Option(help="Length of each measurement.", min=0.1, max=3600)] = 30.0,
    streamed: Annotated[
        int, typer.Option(help="Orders of one streamed request, of the case ndjson.", min=1, max=100_000)
    ] = 100_000,
    case: Annotated[
        list[str] | None,
        typer.Option(
            help="One to measure: bare, gunicorn, post, post-fsync, ndjson, get or put. Repeatable. [all]",
            metavar="CASE",
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Requests per second, latency, CPU and memory of `ingest api`, next to a minimal aiohttp handler.

    That handler runs directly, as the service does, and under gunicorn with as many workers. All of them get the same requests
    from the same clients on this machine, one server after the other. Expected duration and progress go to stderr.

    Examples:
    `ingest bench http` takes about 4 minutes.

    `ingest bench http --case bare --case post --seconds 5` compares a POST with a handler that only answers.

    `ingest bench http --output results` also writes tables, JSON and charts into a directory.
    """
    from ingest.bench.http.compare import CASES, Plan, run

    if unknown := next((name for name in case or () if name not in CASES), None):
        raise typer.BadParameter(f"{unknown!r} is none of {', '.join(CASES)}", param_hint="--case")
    chosen = tuple(name for name in CASES if not case or name in case)
    publish(partial(run, Plan(chosen, clients, processes, seconds, streamed)), output, as_json=as_json)
