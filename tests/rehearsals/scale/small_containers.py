"""Rehearses small containers: ten workers with 0.1 CPU and 256 MiB each, while 200 connections announce orders.

Run it with `make rehearse-containers`. Each worker runs in separate control groups with the limits of a container.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import uvloop
from rehearsals.scale.control_groups import MIB, ControlGroup, Limits, Usage, control_groups
from rehearsals.scale.rehearsal import Findings, Worker, drained, say, table

from ingest.bench.stage import Stage, stage
from ingest.lab.http_api import wait_until_served
from ingest.lab.servers.server import free_port
from ingest.lab.session import orderly_exit

# The kernel assigns shares by periods, within which a sample may end.
_ALLOWANCE = 1.05


class Clients:
    """Connections that each announce one order after the other.

    Attributes:
        accepted: orders with the response 202.
    """

    def __init__(self, port: int, connections: int, rate: float) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/orders"
        self._connections = connections
        self._every = connections / rate
        self.accepted: list[str] = []

    async def run(self, seconds: float) -> None:
        """Announce for so long."""
        until = time.monotonic() + seconds
        connector = aiohttp.TCPConnector(limit=self._connections)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
            for number in range(self._connections):
                tasks.create_task(self._announce(session, number, until))

    async def _announce(self, session: aiohttp.ClientSession, number: int, until: float) -> None:
        due = time.monotonic() + self._every * number / self._connections
        count = 0
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            order_id = f"REHEARSAL-{number}-{count}"
            async with session.post(self._url, json={"order_ids": [order_id]}) as response:
                if response.status == 202:
                    self.accepted.append(order_id)
            count += 1
            due = max(due + self._every, time.monotonic())


class Watched:
    """The usage of the groups during a phase.

    Attributes:
        cpu: processors that each has used, on average.
        memory: the largest working set of each that was seen, in bytes.
        throttled: share of the periods in which each had to wait.
    """

    def __init__(self, groups: Sequence[ControlGroup]) -> None:
        self._groups = groups
        self.memory = [0] * len(groups)
        self.cpu: list[float] = []
        self.throttled: list[float] = []

    async def during(self, phase: asyncio.Task[None]) -> None:
        """Watch until the phase is over."""
        before, began = self._usages(), time.monotonic()
        while not phase.done():
            self._see(self._usages())
            await asyncio.wait([phase], timeout=0.5)
        after, span = self._usages(), time.monotonic() - began
        self._see(after)
        self.cpu = [(last.cpu - first.cpu) / span for first, last in zip(before, after, strict=True)]
        self.throttled = [
            (last.throttled - first.throttled) / (10 * span) for first, last in zip(before, after, strict=True)
        ]
        await phase

    def _usages(self) -> list[Usage]:
        return [group.usage() for group in self._groups]

    def _see(self, usages: Sequence[Usage]) -> None:
        self.memory = [max(most, usage.working_set) for most, usage in zip(self.memory, usages, strict=True)]


async def rehearse(on: Stage, groups: Sequence[ControlGroup], options: argparse.Namespace) -> Findings:
    """Idle, loaded and drained phases, and the reconciliation."""
    findings = Findings("small containers")
    port = free_port()
    api = on.commands.start("api", "--port", str(port), "--metrics-port", "0")
    workers = [Worker(on, f"worker-{number}", group.containing) for number, group in enumerate(groups, 1)]
    wait_until_served([api], port)
    for worker in workers:
        await worker.is_served()
    say(f"{len(workers)} workers are ready; idle for {options.idle:.0f} s")
    await asyncio.sleep(5)
    idle, loaded = Watched(groups), Watched(groups)
    await idle.during(asyncio.create_task(asyncio.sleep(options.idle)))
    say(f"{options.connections} connections announce {options.rate:.0f} orders/s for {options.seconds:.0f} s")
    clients = Clients(port, options.connections, options.rate)
    began = time.monotonic()
    await loaded.during(asyncio.create_task(clients.run(options.seconds)))
    announced = time.monotonic() - began
    findings.require(await drained(on), "the queue does not become empty")
    findings.figures |= {
        "orders announced a second": round(len(clients.accepted) / announced, 1),
        "seconds from the last announcement to empty": round(time.monotonic() - began - announced, 1),
        "connections on the API": options.connections,
    }
    await findings.look(on, clients.accepted)
    for number, (worker, group) in enumerate(zip(workers, groups, strict=True)):
        check(findings, worker, group, max(idle.cpu[number], loaded.cpu[number]))
    print(report(groups, idle, loaded))  # noqa: T201  what it is for
    return findings


def check(findings: Findings, worker: Worker, group: ControlGroup, cpu: float) -> None:
    """No worker has ended, or used more than it may."""
    used, name = group.usage(), worker.process.name
    findings.require(not worker.process.has_ended(), f"{name} has ended")
    findings.require(not used.killed, f"{name}: {used.killed} processes were killed for lack of memory")
    findings.require(used.peak <= group.limits.memory, f"{name} used {used.peak / MIB:.0f} MiB")
    findings.require(cpu <= _ALLOWANCE * group.limits.cpus, f"{name} used {cpu:.3f} CPU")


def report(groups: Sequence[ControlGroup], idle: Watched, loaded: Watched) -> str:
    """A row for each worker."""
    heads = (
        "worker",
        "CPU, idle",
        "MiB, idle",
        "CPU, loaded",
        "MiB, loaded",
        "throttled, loaded",
        "peak with files, MiB",
    )
    rows = [
        (
            str(number + 1),
            f"{idle.cpu[number]:.4f}",
            f"{idle.memory[number] / MIB:.0f}",
            f"{loaded.cpu[number]:.3f}",
            f"{loaded.memory[number] / MIB:.0f}",
            f"{loaded.throttled[number]:.0%}",
            f"{group.usage().peak / MIB:.0f}",
        )
        for number, group in enumerate(groups)
    ]
    return table(heads, rows)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--cpus", type=float, default=0.1, help="processors of each worker")
    parser.add_argument("--memory", type=int, default=256, help="MiB of each worker")
    parser.add_argument("--connections", type=int, default=200, help="connections on the HTTP API")
    parser.add_argument("--rate", type=float, default=300.0, help="orders a second, over all connections")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of load")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with orderly_exit() as stack:
        made = stack.enter_context(control_groups())
        on = stack.enter_context(stage())
        on.migrate()
        api = on.api("--latency", "0.1-0.3")
        on.commands.configure({"INGEST_UPSTREAM_URL": api.url, "INGEST_CONCURRENCY": "10"})
        limits = Limits(options.cpus, options.memory * MIB)
        groups = [made.make(limits) for _ in range(options.workers)]
        return uvloop.run(rehearse(on, groups, options)).conclude(options.json)


if __name__ == "__main__":
    sys.exit(main())
