"""Runs each server under each operation in sequence, and reports rates, latencies, CPU and memory."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from types import MappingProxyType

from ingest.bench.clients import SHARES, Load, Measured
from ingest.bench.errors import BenchFailed
from ingest.bench.http.operations import DELETE, GET, NDJSON, POST, PUT, Operation, stored_ids, streaming
from ingest.bench.http.plan import Plan
from ingest.bench.http.servers import SERVERS, serving
from ingest.bench.machine import Machine
from ingest.bench.panels import OTHER, OURS, PALETTE, WARN, Bars, Chart, Lines, Series
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.select.fill import fill
from ingest.bench.stage import Stage, stage
from ingest.bench.trial import STALLED_AFTER, announce, run_trials
from ingest.lab.usage import PeakMemory, cpu_seconds

CASES: Mapping[str, tuple[str, Operation]] = MappingProxyType({
    "bare": ("bare", POST),
    "gunicorn": ("gunicorn", POST),
    "post": ("service", POST),
    "post-fsync": ("service-fsync", POST),
    "ndjson": ("service", NDJSON),
    "get": ("service", GET),
    "put": ("service", PUT),
    "delete": ("service", DELETE),
})  # fmt: skip
"""The possible measurements by name, each a server and an operation."""

_SEED = 1
# In addition to the measured time, a run starts processes and warms up, and the bench starts servers and fills a table.
_BEFORE_RUN = 4.0
_BEFORE_ALL = 8.0

_CASE = (Column("server", "server"), Column("operation", "operation"))
_SPEED = (
    *_CASE,
    Column("requests_per_second", "requests/s"),
    Column("ratio_to_bare", "x bare", 2),
    Column("orders_per_second", "orders/s"),
    Column("p50_ms", "p50, ms", 1),
    Column("p99_ms", "p99", 1),
    Column("p999_ms", "p99.9", 1),
    Column("longest_ms", "longest", 1),
    Column("limit_ms", "limit of p99.9"),
    Column("errors", "errors"),
)
_COST = (
    *_CASE,
    Column("server_cpu_us_per_request", "server CPU, \N{MICRO SIGN}s/request", 1),
    Column("redis_cpu_us_per_request", "Redis CPU", 1),
    Column("peak_pss_mb", "peak memory (PSS), MB", 1),
    Column("server_cores", "server CPU, cores", 2),
    Column("client_cores", "clients' CPU, cores", 2),
)
_COLOURS = {
    "bare": OTHER,
    "gunicorn": "#c3c8ce",
    "post": OURS,
    "post-fsync": PALETTE[3],
    "get": PALETTE[2],
    "put": WARN,
    "delete": "#93b7e0",
}


def run(plan: Plan) -> Findings:
    """Measure all cases.

    Raises:
        LabFailed: a server or the clients ended, or there was no response.
    """
    announce(f"{len(plan.cases)} runs", _BEFORE_ALL + len(plan.cases) * (plan.seconds + _BEFORE_RUN))
    with stage(durable=True) as on:
        on.migrate()
        fill(on.postgres_dsn, len(stored_ids()))
        runs = run_trials(plan.cases, partial(_measure, on, plan), _line)
    bare = next((run["requests_per_second"] for run in runs if run["case"] == "bare"), None)
    rows = [run | {"ratio_to_bare": run["requests_per_second"] / bare if bare else None} for run in runs]
    title = f"{plan.clients:,} connections for {plan.seconds:g} s, {plan.processes} server process{'es' * (plan.processes > 1)}"
    return Findings(
        name="http",
        settings=asdict(plan),
        tables=[Table(title, _SPEED, rows), Table("Cost", _COST, rows)],
        charts=_charts(title, rows),
        notes=_notes(rows),
        runs=rows,
    )


def _measure(on: Stage, plan: Plan, case: str) -> Row:
    server, operation = CASES[case]
    if operation is NDJSON:
        operation = streaming(plan.streamed)
    clients = on.program("ingest.bench.clients")
    with serving(on, server, plan.processes) as (port, parts):
        count = min(plan.clients, operation.clients or plan.clients)
        try:
            clients.send(Load(port, count, plan.seconds, list(operation.requests()), _SEED))
            if clients.read_line() != "measuring":
                raise clients.failed("does not measure")
            pids = [part.pid for part in parts]
            with PeakMemory(pids) as memory:
                before = sum(map(cpu_seconds, pids)), on.cpu()[0]
                measured = clients.read_reply(Measured, within=STALLED_AFTER + plan.seconds)
                own, redis = sum(map(cpu_seconds, pids)) - before[0], on.cpu()[0] - before[1]
        finally:
            clients.kill()
    if measured.answered == 0:
        raise BenchFailed(f"{case}: no request was answered in {measured.seconds:.1f} s ({measured.errors:,} errors)")
    for key in on.keys().stream, on.keys().express:
        on.redis.delete(key)
    rate = measured.answered / measured.seconds
    return {
        "case": case,
        "server": SERVERS[server],
        "operation": operation.title,
        "clients": count,
        **measured.row(),
        "limit_ms": operation.limit_ms,
        "requests_per_second": rate,
        "orders_per_second": rate * operation.orders,
        "server_cpu_us_per_request": own / measured.answered * 1e6,
        "redis_cpu_us_per_request": redis / measured.answered * 1e6,
        "peak_pss_mb": memory.peak / 1e6,
        "server_cores": own / measured.seconds,
        "client_cores": measured.cpu_seconds / measured.seconds,
    }


def _line(case: str, run: Row) -> str:
    return f"{case}: {run['requests_per_second']:,.0f} requests/s, p99.9 {run['p999_ms']:.1f} ms"


def _charts(title: str, rows: Sequence[Row]) -> list[Chart]:
    """Rates and the distribution of the latencies. Streamed requests take long and are only in the table."""
    shown = [row for row in rows if row["case"] in _COLOURS]
    if not shown:
        return []
    names = [f"{row['server']}: {row['operation']}" for row in shown]
    colours = [_COLOURS[row["case"]] for row in shown]
    rates = Series("", [row["requests_per_second"] for row in shown], colours)
    # Equal steps for each additional nine.
    positions = [(1 / (1 - share), f"{share * 100:g} %") for share in SHARES.values() if share != SHARES["p95"]]
    tails = [
        Series(name, [row[f"{share}_ms"] for share in SHARES if share != "p95"], colour, "o")
        for name, row, colour in zip(names, shown, colours, strict=True)
    ]
    longest = max(value for series in tails for value in series.values)
    return [
        Chart(title, [[Bars("requests/s", names, [rates])]], (9, 1.2 + 0.4 * len(names))),
        Chart(
            f"Latency: {title}",
            [[Lines("ms", positions, tails, (0, 1.4 * longest), "share of the requests answered within", is_log=True)]],
            (9, 5),
            suffix="-latency",
        ),
    ]


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [
        (
            "Each client sends its next request after the previous response. The measurement begins when all clients have "
            "connected and received a response."
        ),
        "The minimal handler reads no body, checks nothing and queues nothing. It shows the cost of aiohttp itself.",
        "With fsync, Redis runs with `appendfsync always`, and a POST gets its response when its order is on disk.",
        f"Clients, server, Redis and PostgreSQL share the {Machine.here().cores} cores of this machine.",
    ]
    hot = [row["client_cores"] for row in rows if row["client_cores"] > 0.9]
    if hot:
        notes.append(
            f"In {len(hot)} of {len(rows)} runs the single process of the clients used over 90 % of a core, so that "
            "the server could do more."
        )
    return notes
