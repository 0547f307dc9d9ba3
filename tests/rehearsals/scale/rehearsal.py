"""Shared parts of the rehearsals: announced orders, workers like in containers, and the reconciliation at the end."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.bench.stage import Stage
from ingest.domain.orders.reconciliation import ReconciliationReport
from ingest.lab.commands import LoggedProcess
from ingest.lab.http_api import wait_until_served
from ingest.lab.servers.server import free_port
from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.catalogue import ORDERS, Catalogue
from ingest.lab.upstream.samples import sample_orders
from ingest.operations.backends import Backends
from ingest.operations.reconcile import Expected, reconcile
from ingest.queue.produce.producer import Producer

_TICK = 0.1
_DRAIN_SECONDS = 300.0
# Log events of scheduled retries, which count as attempts.
_RETRIED = "retry_scheduled"


class Announcer:
    """Announces orders at a variable rate and records them.

    Attributes:
        rate: orders per second.
        accepted: orders that Redis has confirmed.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self.accepted: list[str] = []
        self._buffer = 0.0

    async def announce(self, producer: Producer, count: int) -> None:
        """Announce N orders in one call."""
        first = len(self.accepted)
        batch = [f"REHEARSAL-{number}" for number in range(first, first + count)]
        await producer.enqueue(batch)
        self.accepted += batch

    async def run(self, producer: Producer) -> None:
        """Announce at `rate` until cancelled. An announcement that is cancelled does not count."""
        while True:
            due = time.monotonic() + _TICK
            self._buffer += self.rate * _TICK
            if count := int(self._buffer):
                self._buffer -= count
                await self.announce(producer, count)
            await asyncio.sleep(max(0.0, due - time.monotonic()))


@dataclass(slots=True)
class Findings:
    """The results of a rehearsal: figures and violations."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def require(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001  the condition
        """Note a fault unless the condition holds."""
        if not holds:
            self.faults.append(otherwise)

    async def look(self, on: Stage, accepted: Sequence[str]) -> None:
        """Record the reconciliation. An order that is not stored correctly is an error, and so is a used attempt."""
        report = await _find(on, accepted)
        dead = sum(report.dead_letters.values())
        retries = sum(log.read_text(errors="replace").count(_RETRIED) for log in on.home.glob("*.log"))
        self.figures |= {
            "accepted": report.accepted,
            "stored": report.stored,
            "lost": report.lost.count,
            "wrong": report.wrong.count,
            "dead letters": dead,
            "attempts used up": retries,
        }
        self.require(report.accepted == report.stored, f"{report.accepted - report.stored} orders are not stored")
        self.require(not report.lost.count, f"orders are lost: {report.lost}")
        self.require(not report.wrong.count, f"orders are wrong: {report.wrong}")
        self.require(not dead, f"{dead} orders were dead-lettered")
        self.require(not retries, f"{retries} attempts were used up")

    def conclude(self, output: Path | None) -> int:
        """Print all results, write them to the given file, and return the exit code."""
        self.figures["load of the machine"] = " ".join(f"{load:.1f}" for load in os.getloadavg())
        for name, value in self.figures.items():
            print(f"{name:44} {value}")  # noqa: T201  what it is for
        for fault in self.faults:
            print(f"FAULT: {fault}", file=sys.stderr)  # noqa: T201  as above
        if output is not None:
            output.write_text(json.dumps({"rehearsal": self.name, **self.figures, "faults": self.faults}, indent=2))
        return 1 if self.faults else 0


def say(line: str) -> None:
    """Print the progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)  # noqa: T201  as above


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Worker:
    """One `ingest worker` with /metrics on a port of this machine, run by any command line.

    Attributes:
        process: the command, with its children.
        port: of /metrics.
    """

    def __init__(
        self, on: Stage, name: str, wrapped: Callable[[list[str]], list[str]] = list, processes: int = 1
    ) -> None:
        self.port = free_port()
        arguments = ["worker", "--processes", str(processes), "--metrics-port", str(self.port)]
        self.process = LoggedProcess(
            name,
            wrapped([sys.executable, "-m", "ingest", *arguments]),
            home=on.home,
            log=on.home / f"{name}.log",
            watchdog=on.commands.watchdog,
            environment={"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {},
        )

    async def is_served(self) -> None:
        """Return once it answers."""
        await asyncio.to_thread(wait_until_served, [self.process], self.port)


async def drained(on: Stage) -> bool:
    """Wait until the queue is empty, including retries, or return False after the deadline."""

    async def is_empty() -> bool:
        return on.queued() == (0, 0)

    return await happens(is_empty, _DRAIN_SECONDS)


async def happens(condition: Callable[[], Awaitable[bool]], within: float, every: float = 0.1) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + within
    while not await condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(every)
    return True


async def _find(on: Stage, accepted: Sequence[str]) -> ReconciliationReport:
    """Look for every order, and compare it with the API's."""
    usual = Catalogue(sample_orders(), Behaviour(any_id=True))

    async def expected(order_id: str) -> Expected:
        return usual.response(ORDERS + order_id.encode()).payload.partition(b"\r\n\r\n")[2]

    return await reconcile(
        accepted, Backends(on.redis_url, on.postgres_dsn, on.stream), expected=expected, complete=True
    )
