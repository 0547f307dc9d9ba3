"""Runs the comparison and reports it: two tables, and what a reader has to know."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from ingest.bench.machine import Machine
from ingest.bench.report import Cell, Column, Report, Result, Table
from ingest.bench.select.compare import Found, Plan, compare
from ingest.bench.select.pausing import PAUSES
from ingest.bench.select.readers import KINDS

_NEARLY_ALL = 0.9

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


def run(plan: Plan, command: str) -> Result:
    """Run the plan; `command` is as it was typed.

    Raises:
        LabFailed: a server or the clients ended, or nothing was answered.
    """
    machine = Machine.here()
    reading, pausing = compare(plan)

    def draw_both(path: Path) -> None:
        from ingest.bench.select.picture import draw  # noqa: PLC0415  Matplotlib takes half a second

        draw(plan, reading, pausing, path)

    return Result(_report(plan, reading, pausing, command, machine), draw_both)


def _report(plan: Plan, reading: Sequence[Found], pausing: Sequence[Found], command: str, machine: Machine) -> Report:
    return Report(
        name="select",
        command=command,
        machine=machine,
        settings=asdict(plan),
        tables=[
            Table(
                f"Reading stored orders, {plan.clients:,} clients at a time",
                (*_SETTING, *_MEASURED),
                [_reading_row(found) for found in reading],
            ),
            Table(
                f"A call of 0.1 s in one of {plan.blocking_every:,} requests, {plan.blocking_clients:,} clients at a time",
                (Column("pause", "the call"), *_MEASURED),
                [_pausing_row(found) for found in pausing],
            ),
        ],
        notes=_notes(plan, [*reading, *pausing], machine),
        runs=[_run(found) for found in [*reading, *pausing]],
    )


def _reading_row(found: Found) -> dict[str, Cell]:
    setting = found.setting
    where: dict[str, Cell] = {"processes": setting.processes, "pool": setting.pool, "kind": KINDS[setting.kind]}
    return where | _measured(found)


def _pausing_row(found: Found) -> dict[str, Cell]:
    call: dict[str, Cell] = {"pause": PAUSES[found.setting.pause]}
    return call | _measured(found)


def _measured(found: Found) -> dict[str, Cell]:
    measured = found.measured
    return {
        "requests_per_second": found.per_second,
        "p50_ms": measured.p50_ms,
        "p95_ms": measured.p95_ms,
        "p99_ms": measured.p99_ms,
        "longest_ms": measured.longest_ms,
        "errors": measured.errors,
        "server_cores": found.server_cores,
        "postgres_cores": found.postgres_cores,
        "client_cores": found.client_cores,
    }


def _run(found: Found) -> dict[str, Any]:
    return {**asdict(found.setting), **msgspec.to_builtins(found.measured), **_measured(found)}


def _notes(plan: Plan, all_found: Sequence[Found], machine: Machine) -> list[str]:
    notes = [
        (
            "All ways serve `GET /orders/ID` by the same aiohttp server on uvloop and send the same JSON; they differ only in how "
            "the handler reads: `await pool.fetchrow(...)` of asyncpg, the same behind an `asyncio.Semaphore` of the pool's size "
            "(in turn), or `await loop.run_in_executor(...)` of a psycopg pool's read, with a thread for each connection. All "
            "prepare their statement and need one round trip for a read. Slow calls are compared with the pool in turn."
        ),
        (
            "asyncpg's pool lets new requests overtake those that wait for a connection: some clients are served at once, again "
            "and again, and others not for seconds, so percentiles of the answers look too good. The longest wait includes "
            "requests that were still unanswered at the end. In turn, no request is overtaken."
        ),
        (
            f"{plan.orders:,} real orders, asked for at random. Each client sends its next request when it has its answer, so "
            "latency is about clients divided by requests/s; it is measured from when all are connected and each has been answered."
        ),
        f"Clients, server and PostgreSQL share the {machine.cores} cores of this machine.",
        "Published for 2,000 clients: async 2,008 requests/s, p95 1,120 ms; sync pool in threads 1,124 requests/s, p95 2,030 ms.",
    ]
    hot = [found for found in all_found if found.client_cores > _NEARLY_ALL]
    if hot:
        most = max(found.client_cores for found in hot)
        notes.append(
            f"In {len(hot)} of {len(all_found)} runs the clients' one process used over {_NEARLY_ALL:.0%} of a core (up to {most:.0%}): "
            "there the server could do more."
        )
    return notes
