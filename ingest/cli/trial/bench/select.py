"""`ingest bench select`: an async pool against a sync pool in threads."""

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from ingest.bench.select.plan import Plan
from ingest.cli.field_options import with_fields_of
from ingest.cli.trial.bench.output import AsJson, Output, publish


@with_fields_of(Plan)
def select(
    *,
    plan: Plan,
    pool: Annotated[str, typer.Option(metavar="N,N,…", help="Connections of each server process.")] = "10,20,50",
    processes: Annotated[str, typer.Option(metavar="N,N,…", help="Server processes, on one port.")] = "1,2",
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
    from ingest.bench.select.compare import run

    pools, counts = numbers("--pool", pool, most=500), numbers("--processes", processes, most=16)
    publish(partial(run, replace(plan, pools=pools, processes=counts)), output, as_json=as_json)


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
