"""Runs servers and clients for each setting in sequence, and reports rates, latencies and CPU."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from ingest.bench.clients import Load, Measured, Request, http_request
from ingest.bench.errors import BenchFailed
from ingest.bench.machine import Machine
from ingest.bench.panels import OTHER, OURS, PALETTE, WARN, Bars, Chart, GroupedBars, Series
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.select.fill import fill
from ingest.bench.select.plan import KINDS, PAUSES, Plan, Setting
from ingest.bench.select.server import Serve
from ingest.bench.stage import Stage, stage
from ingest.bench.trial import STALLED_AFTER, announce, run_trials
from ingest.lab.programs import Program
from ingest.lab.usage import cpu_seconds

_SEED = 1
_PAUSE_SECONDS = 0.1
_SPARE_CONNECTIONS = 20
_NEARLY_ALL = 0.9
# In addition to the measured time, a run starts processes and warms up, and the bench starts servers and fills a table.
_BEFORE_RUN = 3.0
_BEFORE_ALL = 8.0

_SETTING = (Column("processes", "processes"), Column("pool", "pool of each"), Column("kind", "reading"))
_MEASURED = (
    Column("requests_per_second", "requests/s"),
    Column("p50_ms", "p50 (ms)", 1),
    Column("p95_ms", "p95 (ms)", 1),
    Column("p99_ms", "p99 (ms)", 1),
    Column("longest_ms", "longest wait (ms)", 1),
    Column("errors", "errors"),
    Column("server_cores", "server CPU (cores)", 2),
    Column("postgres_cores", "PostgreSQL CPU (cores)", 2),
    Column("client_cores", "clients' CPU (cores)", 2),
)
_COLOURS = {"async_in_turn": OURS, "async_plain": "#93b7e0", "threads": OTHER, "wrapped": PALETTE[2], "blocking": WARN}
_PAUSE_COLOURS = {"none": OTHER, "blocking": WARN, "awaited": OURS, "thread": PALETTE[2]}


def run(plan: Plan) -> Findings:
    """Run all settings of both comparisons.

    Raises:
        LabFailed: a server or the clients ended, or there was no response.
    """
    settings = [*plan.reading(), *plan.pausing()]
    announce(f"{len(settings)} runs", _BEFORE_ALL + len(settings) * (plan.seconds + _BEFORE_RUN))
    connections = max(plan.pools) * max(plan.processes) + _SPARE_CONNECTIONS
    with stage(durable=False, postgres_settings={"max_connections": str(connections)}) as on:
        on.migrate()
        measure = partial(_measure, on, plan, fill(on.postgres_dsn, plan.orders))
        runs = run_trials(
            settings, measure, lambda setting, run: f"{setting}: {run['requests_per_second']:,.0f} requests/s"
        )
    reading, pausing = runs[: len(plan.reading())], runs[len(plan.reading()) :]
    return Findings(
        name="select",
        settings=asdict(plan),
        tables=[
            Table(
                f"Reading stored orders with {plan.clients:,} concurrent clients",
                (*_SETTING, *_MEASURED),
                [run | {"kind": KINDS[run["kind"]]} for run in reading],
            ),
            Table(
                f"A call of 0.1 s in one of {plan.blocking_every:,} requests, {plan.blocking_clients:,} clients",
                (Column("pause", "the call"), *_MEASURED),
                [run | {"pause": PAUSES[run["pause"]]} for run in pausing],
            ),
        ],
        charts=[_reading_chart(plan, reading), _pausing_chart(plan, pausing)],
        notes=_notes(plan, runs),
        runs=runs,
    )


def _measure(on: Stage, plan: Plan, order_ids: list[str], setting: Setting) -> Row:
    """Run one setting, and return it with the clients' measurements and the used cores."""
    # Started concurrently, because they import many modules before they read their parameters.
    servers = [on.program("ingest.bench.select.server") for _ in range(setting.processes)]
    clients = on.program("ingest.bench.clients")
    try:
        port = 0
        for server in servers:
            every = plan.blocking_every
            server.send(Serve(setting.kind, on.postgres_dsn, setting.pool, port, setting.pause, every, _PAUSE_SECONDS))
            port = int(server.read_line())
        clients.send(Load(port, setting.clients, plan.seconds, [request_of(order_id) for order_id in order_ids], _SEED))
        if clients.read_line() != "measuring":
            raise clients.failed("does not measure")
        before = _cpu(on, servers)
        measured = clients.read_reply(Measured, within=STALLED_AFTER + plan.seconds)
        after = _cpu(on, servers)
    finally:
        for program in [*servers, clients]:
            program.kill()
    if measured.answered == 0:
        raise BenchFailed(f"{setting}: no request was answered in {measured.seconds:.1f} s")
    return {
        **asdict(setting),
        **measured.row(),
        "requests_per_second": measured.answered / measured.seconds,
        "server_cores": (after[0] - before[0]) / measured.seconds,
        "postgres_cores": (after[1] - before[1]) / measured.seconds,
        "client_cores": measured.cpu_seconds / measured.seconds,
    }


def request_of(order_id: str) -> Request:
    """Requests an order."""
    return Request(http_request("GET", f"/orders/{order_id}"), 200, b'{"order_id":"%s",' % order_id.encode())


def _cpu(on: Stage, servers: Sequence[Program]) -> tuple[float, float]:
    return sum(cpu_seconds(server.pid) for server in servers), on.cpu()[1] or 0.0


def _reading_chart(plan: Plan, runs: Sequence[Row]) -> Chart:
    """Rate, tail and longest wait by pool size, with a column for each number of processes."""

    def panel(key: str, label: str, processes: int) -> GroupedBars:
        is_first, is_top, is_last = processes == plan.processes[0], key == "requests_per_second", key == "longest_ms"
        mine = [run for run in runs if run["processes"] == processes]
        series = [
            Series(title, [run[key] or 0.0 for run in mine if run["kind"] == kind], _COLOURS[kind])
            for kind, title in KINDS.items()
        ]
        return GroupedBars(
            label if is_first else "",
            [str(pool) for pool in plan.pools],
            series,
            heading=f"{processes} server process{'es' * (processes > 1)}" if is_top else "",
            below="connections of each process" if is_last else "",
        )

    panels = {
        "requests_per_second": "requests/s",
        "p95_ms": "p95 of the responses (ms)",
        "longest_ms": "longest wait (ms)",
    }
    return Chart(
        f"Reading stored orders, {plan.clients:,} clients: async pool and threads",
        [[panel(key, label, processes) for processes in plan.processes] for key, label in panels.items()],
        (max(7.5, 1.5 + 4.2 * len(plan.processes)), 8.6),
        has_legend=True,
    )


def _pausing_chart(plan: Plan, runs: Sequence[Row]) -> Chart:
    """The effect of a slow call on rate and tails."""
    names, colours = [PAUSES[run["pause"]] for run in runs], [_PAUSE_COLOURS[run["pause"]] for run in runs]
    shares = ("p50", "p95", "p99")
    tails = [
        Series(name, [run[f"{share}_ms"] or 0.0 for share in shares], colour)
        for name, run, colour in zip(names, runs, colours, strict=True)
    ]
    rates = Series("", [run["requests_per_second"] for run in runs], colours)
    return Chart(
        f"Effect of a slow call on all others: 0.1 s in one of {plan.blocking_every:,} requests, "
        f"{plan.blocking_clients:,} clients",
        [[Bars("requests/s", names, [rates]), GroupedBars("latency (ms)", shares, tails)]],
        (11, 3.6),
        suffix="-blocking",
        shares_rows=False,
    )


def _notes(plan: Plan, runs: Sequence[Row]) -> list[str]:
    notes = [
        (
            "All ways serve `GET /orders/ID` with the same aiohttp server on uvloop and send the same JSON. They only "
            "differ in the handler's read, which is asyncpg's `await pool.fetchrow(...)`, the same behind an "
            "`asyncio.Semaphore` of the pool's size (in turn), `await loop.run_in_executor(...)` of a psycopg pool's "
            "read, with a thread for each connection, the same of `asyncio.run(...)`, which connects for each read, or "
            "a psycopg pool's read in the event loop. All need one round trip, without the connection. Slow calls are "
            "compared with the pool in turn."
        ),
        (
            "asyncpg's pool lets new requests overtake requests that wait for a connection. Some clients are always "
            "served immediately while others wait for seconds, so that percentiles of the responses look too good. "
            "The longest wait includes requests without a response at the end. In turn, no request is overtaken."
        ),
        (
            f"Clients request {plan.orders:,} real orders at random. Each client sends its next request after the "
            "previous response, so that latency is about clients divided by requests/s. The measurement begins when "
            "all clients have connected and received a response."
        ),
        f"Clients, server and PostgreSQL share the {Machine.here().cores} cores of this machine.",
        "Published for 2,000 clients: async 2,008 requests/s, p95 1,120 ms. Sync in threads 1,124 requests/s, p95 2,030 ms.",
    ]
    hot = [run["client_cores"] for run in runs if run["client_cores"] > _NEARLY_ALL]
    if hot:
        notes.append(
            f"In {len(hot)} of {len(runs)} runs the single process of the clients used over {_NEARLY_ALL:.0%} of a "
            f"core (up to {max(hot):.0%}), so that the server could do more."
        )
    return notes
