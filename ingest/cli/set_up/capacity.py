"""`ingest capacity`: the resources for a rate of orders, and the first bottleneck."""

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.terminal.text import counted
from ingest.cli.terminal.width import width_of

if TYPE_CHECKING:
    from ingest.domain.capacity.capacity_plan import CapacityPlan, PlannedDemand
    from ingest.domain.capacity.source_demand import SourceDemand, SourceShare

_LABEL = 25
# Before a long range, a word would leave too little of 80 columns for the name of the longest option, as would the ranges of the rate and
# of the outage.
_NUMBER = "N"
_HIGHEST_RATE = 1_000_000
_LONGEST_LATENCY = 3_600
_LONGEST_OUTAGE = 1_000_000_000


def capacity(  # noqa: PLR0913  each parameter is one option
    *,
    rate: Annotated[
        float | None, typer.Option(help="Orders per second, in the busiest minute.", min=0.001, show_default=False)
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(
            help="Of the external API: the mean, in seconds.",
            metavar=_NUMBER,
            min=0.0001,
            max=_LONGEST_LATENCY,
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="The rate and the latency of one of several sources, instead of --rate and --latency. Repeatable.",
            metavar="NAME=RATE/LATENCY",
        ),
    ] = None,
    latency_p99: Annotated[
        float | None,
        typer.Option(help="The 99th percentile of it.", metavar=_NUMBER, min=0.0001, max=3600, show_default=False),
    ] = None,
    order_bytes: Annotated[int, typer.Option(help="Mean length of a document.", min=1, max=67_108_864)] = 1_000,
    client: Annotated[
        str, typer.Option(help="The HTTP client of the workers, native or aiohttp.", metavar="NAME")
    ] = "native",
    bulk: Annotated[int, typer.Option(help="Orders in one request.", min=1, max=1_000)] = 1,
    announced: Annotated[int, typer.Option(help="Orders enqueued together.", min=1, max=100_000)] = 1,
    quota: Annotated[float, typer.Option(help="Requests per second that the API permits. 0 for any.", min=0)] = 0.0,
    quota_concurrency: Annotated[
        int, typer.Option(help="Concurrent requests that the API permits. 0 for any.", min=0)
    ] = 0,
    outage: Annotated[
        float, typer.Option(help="Seconds for which Redis is to hold all orders, while nothing is stored.", min=0)
    ] = 3_600.0,
    processes_per_host: Annotated[int, typer.Option(help="Worker processes of each host.", min=1, max=256)] = 2,
    postgres_connections: Annotated[
        int, typer.Option(help="Connections to PostgreSQL that workers may open.", min=1)
    ] = 90,
    redis_nodes: Annotated[
        int,
        typer.Option(help="Primaries of a Redis Cluster, which share the partitions.", metavar=_NUMBER, min=1, max=32),
    ] = 1,
    speed: Annotated[
        float,
        typer.Option(
            help="Speed of your machine, compared with the machine of the measurements.",
            metavar=_NUMBER,
            min=0.01,
            max=100,
        ),
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the resources for a rate of orders.

    These are processes, orders in flight, connections and memory. It also names the first bottleneck.

    The formula is based on measurements, which `ingest bench pipeline` repeats on your machine. It uses no server.

    The exit code is 1 if the rate cannot be reached.

    Examples:
    `ingest capacity --rate 2000 --latency 0.3` shows processes, orders in flight, connections and memory for 2,000
    orders per second.

    `ingest capacity --rate 50 --latency 0.8 --latency-p99 4 --quota 40` takes into account that the API permits 40
    requests per second.

    `ingest capacity --source shop-de=200/0.1 --source warehouse=50/0.6` plans for several sources in the same workers, and
    the share of each.

    `ingest capacity --rate 12000 --latency 0.2 --redis-nodes 3` plans for a Redis Cluster with three primaries.

    `ingest capacity --rate 20000 --latency 0.2 --announced 100 --bulk 50 --processes-per-host 4 --json` prints
    JSON.

    The formula, and the measurements behind it: https://order-ingest.example/docs/operate/capacity.html
    """
    options = locals()
    from ingest.domain.capacity.capacity_plan import CLIENTS, PlannedDemand, plan
    from ingest.domain.capacity.source_demand import SourceDemand, share_of, total_of

    sources = dict(map(_parse_source, source or ()))
    if sources:
        if rate is not None or latency is not None or quota or quota_concurrency:
            raise typer.BadParameter(
                "--source replaces --rate and --latency. Check the quota of each source separately"
            )
        total = total_of(sources.values())
    elif rate is None or latency is None:
        raise typer.BadParameter("give --rate and --latency, or --source for each of several sources")
    else:
        total = SourceDemand(rate, latency)
    options |= {"rate": total.rate, "latency": total.latency}
    for name, value, most in (("--rate", total.rate, _HIGHEST_RATE), ("--outage", outage, _LONGEST_OUTAGE)):
        if value > most:
            raise typer.BadParameter(f"{value:g} is more than {most:,}", param_hint=f"'{name}'")
    if client not in CLIENTS:
        raise typer.BadParameter(f"choose {', '.join(CLIENTS)}", param_hint="'--client'")
    demand = PlannedDemand(**{field.name: options[field.name] for field in fields(PlannedDemand)})
    found = plan(demand)
    shares = {name: share_of(each, found.processes) for name, each in sources.items()}
    if as_json:
        report = {"demand": asdict(demand), "reached": found.rate >= demand.rate, **asdict(found)}
        if shares:
            report["sources"] = [{"source": name, **asdict(share)} for name, share in shares.items()]
        typer.echo(json.dumps(report))
    else:
        _print(demand, found, shares)
    raise typer.Exit(0 if found.rate >= demand.rate else 1)


def _parse_source(text: str) -> tuple[str, "SourceDemand"]:
    """The name and the demand of `shop-de=200/0.1`."""
    from ingest.domain.capacity.source_demand import SourceDemand
    from ingest.domain.source_name import parse_source_name

    name, _, numbers = text.partition("=")
    try:
        rate, latency = (float(number) for number in numbers.split("/"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not NAME=RATE/LATENCY", param_hint="'--source'") from None
    if not (0 < rate <= _HIGHEST_RATE and 0 < latency <= _LONGEST_LATENCY):
        raise typer.BadParameter(f"the rate or the latency of {text!r} is out of range", param_hint="'--source'")
    return parse_source_name(name), SourceDemand(rate, latency)


def _print(demand: "PlannedDemand", found: "CapacityPlan", shares: "Mapping[str, SourceShare]") -> None:
    width = width_of(sys.stdout)
    for label, value in (*_facts(demand, found, shares), *_limits(demand, found)):
        typer.echo(
            textwrap.fill(
                f"{label:<{_LABEL}}{value}", width, subsequent_indent=" " * _LABEL, break_long_words=False
            ).rstrip()
        )


def _facts(
    demand: "PlannedDemand", found: "CapacityPlan", shares: "Mapping[str, SourceShare]"
) -> Iterator[tuple[str, str]]:
    yield "orders in flight", f"{found.in_flight:,.0f} on average, {found.slots:,} to allow"
    yield "", ""
    yield "INGEST_PROCESSES", f"{min(found.processes, demand.processes_per_host)} on each host"
    yield "INGEST_CONCURRENCY", f"{found.concurrency:,}"
    if demand.redis_nodes > 1:
        yield "INGEST_PARTITIONS", f"{found.partitions:,}"
    if not shares:
        yield "INGEST_UPSTREAM_TIMEOUT", f"{found.timeout:g}"
    for name, share in shares.items():
        yield name, f"concurrency = {share.concurrency:,}, upstream.timeout = {share.timeout:g}"
    yield "", ""
    yield "workers", f"{found.processes:,} processes on {counted(found.hosts, 'host')}, {found.worker_cores:.2g} cores"
    yield "memory of a host", f"{_bytes(found.host_memory)}, at most"
    yield "open files", f"{found.open_files:,} of one process"
    yield "external API", counted(found.api_connections, "connection")
    redis, sql = counted(found.redis_connections, "connection"), counted(found.postgres_connections, "connection")
    held = f"{_bytes(found.redis_memory)} with the orders of {demand.outage:,.0f} s; maxmemory twice that"
    each = "each Redis node" if demand.redis_nodes > 1 else "Redis"
    yield each, f"{redis}, {found.redis_cores:.2g} of its core, {held}"
    rows = f"{_bytes(found.postgres_bytes_a_day)} of new rows a day"
    yield "PostgreSQL", f"{sql} with {_bytes(found.postgres_memory)}, {found.postgres_cores:.2g} cores, {rows}"
    yield "", ""


def _limits(demand: "PlannedDemand", found: "CapacityPlan") -> Iterator[tuple[str, str]]:
    label = "limits"
    for limit in found.limits:
        yield label, f"{_rate(limit.orders_per_s)} orders/s: {limit.what}"
        label = ""
    if (missing := demand.rate - found.rate) > 0:
        what = f"{_rate(found.rate)} orders/s are stored, for which all of this is, and the queue grows by {_rate(missing)} a second"
        yield "not reached", what


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _bytes(size: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9)):
        if size >= length:
            return f"{size / length:.3g} {unit}"
    return f"{size / 1e6:,.0f} MB"
