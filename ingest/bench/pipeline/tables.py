"""Builds the tables, the chart and the notes of a comparison."""

from collections.abc import Sequence

from ingest.bench.panels import OTHER, OURS, PALETTE, Bars, Chart, Series
from ingest.bench.pipeline.figures import Figures, worst
from ingest.bench.pipeline.plan import BARE, GO, GO_JSON, SERVICE, Plan
from ingest.bench.report import Cell, Column, Table
from ingest.lab.upstream.samples import sample_orders

_CONTENDER = Column("contender", "contender")
_SPEED = (
    _CONTENDER,
    Column("orders_per_s", "orders/s"),
    Column("seconds", "first request to last commit, s", 2),
    Column("ratio_to_ideal", "x ideal", 3),
    Column("peak_concurrency", "peak concurrency at the API"),
    Column("lost", "lost"),
    Column("dead_letters", "dead letters"),
    Column("wrong", "wrong rows"),
    Column("duplicate_fetches", "duplicate fetches"),
    Column("rejected_requests", "429 and 503"),
)
_COST = (
    _CONTENDER,
    Column("own_cpu_us_per_order", "own CPU, us/order"),
    Column("own_cpu_us_per_order_without_startup", "without start-up"),
    Column("redis_cpu_us_per_order", "Redis"),
    Column("postgres_cpu_us_per_order", "PostgreSQL"),
    Column("api_cpu_us_per_order", "API"),
    Column("api_busy_cores", "API, cores", 2),
    Column("redis_round_trips_per_order", "Redis round trips/order", 2),
    Column("peak_pss_mb", "peak memory (PSS), MB", 1),
)
_KILL = (
    _CONTENDER,
    Column("seconds_from_kill_to_recovered", "kill to all of its orders stored, s", 2),
    Column("seconds_from_kill_to_done", "kill to all stored, s", 2),
    Column("lost", "lost"),
    Column("duplicate_fetches", "duplicate fetches"),
)
_TITLES = {SERVICE: "service", BARE: "bare loop", GO: "bare loop in Go", GO_JSON: "bare loop in Go, go-json"}
_COST_PARTS = (
    ("own_cpu_us_per_order_without_startup", PALETTE[3], "own"),
    ("redis_cpu_us_per_order", PALETTE[1], "Redis"),
    ("postgres_cpu_us_per_order", PALETTE[2], "PostgreSQL"),
)
_RATIOS = (
    "orders_per_s",
    "own_cpu_us_per_order",
    "own_cpu_us_per_order_without_startup",
    "redis_cpu_us_per_order",
    "postgres_cpu_us_per_order",
    "peak_pss_mb",
)


def tables(plan: Plan, rows: Sequence[Figures]) -> list[Table]:
    """All tables, with a row for each contender."""
    found = [
        Table("Speed and reconciliation", _SPEED, rows),
        Table("Cost", _COST, rows),
        Table("Latency, ms", _latency_columns(plan), rows),
    ]
    if plan.kill_at is not None:
        found.append(Table("After the kill", _KILL, rows))
    if len(rows) > 1:
        found.append(_ratios(rows))
    return found


def comparison_chart(plan: Plan, rows: Sequence[Figures]) -> Chart:
    """The speed and cost of each contender, including its cost in the servers."""
    names = [_TITLES[row["contender"]] for row in rows]
    colours = [OURS if row["contender"] == SERVICE else OTHER for row in rows]

    def series(key: str, colour: str | list[str], label: str = "") -> Series:
        return Series(label, [row[key] or 0.0 for row in rows], colour)

    service, *rivals = (row["latency_p99_ms" if plan.rate else "orders_per_s"] or 0.0 for row in rows)
    if plan.rate:
        key, label, unit = "latency_p99_ms", "announced to committed, p99, ms", " ms"
        title = f"At {plan.rate:,.0f} orders a second, 99 % are stored within {service:,.0f} ms of their announcement"
    else:
        key, label, unit = "orders_per_s", "orders per second", ""
        title = f"The service stores {service:,.0f} orders a second with {plan.in_flight:,} in flight"
    compared = [f"{name}: {value:,.0f}{unit}" for name, value in zip(names[1:], rivals, strict=True)]
    costs = [series(*part) for part in _COST_PARTS]
    panels = [
        Bars(label, names, [series(key, colours)]),
        Bars("CPU time per order, \N{MICRO SIGN}s", names, costs),
        Bars("peak memory (PSS), MB", names, [series("peak_pss_mb", colours)]),
    ]
    return Chart("; ".join([title, *compared]), [panels], (11.0, 1.75 + 0.55 * len(rows)))


def notes(plan: Plan, runs: Sequence[Figures], queued: float | None) -> list[str]:
    """Notes below the tables."""
    clock = (
        "PostgreSQL's commit timestamps"
        if "commit" in runs[0]["commit_clock"]
        else "ingested_at, which is slightly earlier"
    )
    count = sum(run["contender"] == SERVICE for run in runs)
    stopped = {code for run in runs for code in run["exit_codes"]} - {0}
    found = {
        f"Medians of {count} runs each. Losses, dead letters and wrong rows are of the worst run.": count > 1,
        f"{plan.orders:,} orders, {_arrival(plan)}; the external API responds in {plan.latency} s, "
        f"{_size(plan)}{_transport(plan)}.": True,
        f"The service: {', '.join(_service(plan))}.": True,
        f"Commit times are {clock}.": True,
        "Start-up is the contender's CPU time until all of its processes had begun to read. The servers' CPU time is "
        "counted from then on.": True,
        f"Others on the machine used {worst(runs, 'other_busy_cores'):.2f} cores in the worst run.": True,
        f"The ideal, with every slot fetching without a pause, is {plan.ideal or 0:.2f} s.": plan.ideal is not None,
        "Latency is measured from the moment at which the announcement was sent. The load was late by "
        f"{worst(runs, 'load_late_p99_ms'):.1f} ms at p99 in the worst run.": plan.rate > 0,
        f"A queued order takes {queued or 0:.0f} bytes in Redis.": queued is not None,
        f"Not every process stopped with exit code 0: {sorted(map(str, stopped))}.": bool(stopped),
    }
    return [note for note, holds in found.items() if holds]


def _latency_columns(plan: Plan) -> tuple[Column, ...]:
    # With a backlog, the age of an order at its commit would only show the length of the backlog.
    kind = "latency" if plan.rate else "request_to_commit"
    name = "announced to committed" if plan.rate else "requested to committed"
    shown = {"p50": "p50", "p99": "p99", "p999": "p99.9"}
    return (
        _CONTENDER,
        *(
            Column(f"{kind}_{share}_ms", f"{name}, {title}" if share == "p50" else title, 1)
            for share, title in shown.items()
        ),
        *(
            Column(f"{kind}_{share}_above_api_ms", f"less the API's own: {title}" if share == "p50" else title, 1)
            for share, title in shown.items()
        ),
    )


def _ratios(rows: Sequence[Figures]) -> Table:
    """The service divided by each rival."""
    service, *rivals = rows
    columns = [Column("ratio", "service / rival"), *(Column(name, name.replace("_", " "), 3) for name in _RATIOS)]
    found: list[dict[str, Cell]] = [
        {"ratio": f"service / {rival['contender']}", **{name: _divided(service[name], rival[name]) for name in _RATIOS}}
        for rival in rivals
    ]
    return Table("Ratios of the medians", columns, found)


def _divided(one: float | None, other: float | None) -> float | None:
    return round(one / other, 4) if one is not None and other else None


def _service(plan: Plan) -> list[str]:
    found = [
        (
            f"{plan.processes} {'process' if plan.processes == 1 else 'processes'}, "
            f"{plan.concurrency} orders in flight in each"
        )
    ]
    if plan.commands > 1:
        found.append(f"in {plan.commands} commands")
    if plan.client is not None:
        found.append(f"client {plan.client}")
    if plan.batch_rows is not None:
        found.append(f"at most {plan.batch_rows:,} rows in a transaction")
    if plan.history:
        found.append("with history")
    if plan.traces_to is not None:
        found.append(f"traces of {plan.traced:.2%} of the orders")
    return found


def _size(plan: Plan) -> str:
    if not plan.order_bytes or plan.orders <= len(sample_orders()):
        return "with real orders of 2 KB on average"
    return (
        f"with {len(sample_orders()):,} real orders of 2 KB on average, and others of about {plan.order_bytes:,} bytes"
    )


def _transport(plan: Plan) -> str:
    return ", over HTTPS with persistent connections" if plan.tls else ""


def _arrival(plan: Plan) -> str:
    return f"arriving at {plan.rate:g} a second (Poisson)" if plan.rate else "all queued beforehand"
