"""`ingest bench select`: an async pool against a sync pool in threads."""

from functools import partial
from typing import Annotated

import typer

from ingest.cli.trial.bench.output import AsJson, Output, publish


def select(
    *,
    clients: Annotated[int, typer.Option(help="Clients at a time.", min=1, max=5_000)] = 2_000,
    pool: Annotated[str, typer.Option(metavar="N,N,…", help="Connections of each server process.")] = "10,20,50",
    processes: Annotated[str, typer.Option(metavar="N,N,…", help="Server processes, on one port.")] = "1,2",
    seconds: Annotated[float, typer.Option(help="Length of each measurement.", min=0.1, max=3600)] = 5.0,
    orders: Annotated[int, typer.Option(help="Orders in the table.", min=1, max=10_000)] = 10_000,
    blocking_every: Annotated[int, typer.Option(help="One in this many requests has a slow call.", min=1)] = 100,
    blocking_clients: Annotated[
        int, typer.Option(help="Clients at a time where slow calls are compared.", min=1, max=5_000)
    ] = 200,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compare async and sync pools for reading orders.

    Many concurrent clients read stored orders through an async pool, and in threads through a sync pool.

    It also shows the effect of one blocking call in async code on all other requests. It starts its own PostgreSQL with
    real orders, and removes it at the end. Expected duration and progress go to stderr.

    Examples:
    `ingest bench select` compares pools of 10, 20 and 50 in one and in two processes: about 3 minutes.

    `ingest bench select --clients 200 --pool 20 --processes 1` makes one comparison, with fewer clients.

    `ingest bench select --blocking-every 1000` makes blocking calls rare.

    `ingest bench select --output results` also writes tables, JSON and charts into a directory.
    """
    from ingest.bench.select.compare import Plan, run

    plan = Plan(
        clients=clients,
        pools=numbers("--pool", pool, most=500),
        processes=numbers("--processes", processes, most=16),
        seconds=seconds,
        orders=orders,
        blocking_every=blocking_every,
        blocking_clients=blocking_clients,
    )
    publish(partial(run, plan), output, as_json=as_json)


def numbers(option: str, text: str, *, most: int) -> list[int]:
    """An option's list of numbers, ascending.

    Raises:
        typer.BadParameter: it is not one.
    """
    parts = [part.strip() for part in text.split(",")]
    numbers = sorted({int(part) for part in parts if part.isascii() and part.isdigit()})
    if len(numbers) != len(parts) or not 1 <= numbers[0] <= numbers[-1] <= most:
        raise typer.BadParameter(f"{text!r} is no list of different numbers from 1 to {most:,}", param_hint=option)
    return numbers
