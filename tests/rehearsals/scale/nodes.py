"""Measures how the throughput of Redis grows with the nodes of a cluster: `make nodes`. Needs root on Linux.

Each server has the same share of a processor, as if it had its own small host, so that a machine with few cores can show more
servers than cores. Simulated workers read and ack entries by the service's own parts, as fast as Redis lets them, without fetching or
storing orders. The second part has no limits, and compares the processor time of Redis for an order at a fixed rate.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psutil
import uvloop
from rehearsals.scale.control_groups import MIB, ControlGroups, Limits, control_groups
from rehearsals.scale.fleet import Fleet
from rehearsals.scale.limited_servers import LimitedHosts, Made, cluster, standalone
from servers.kinds import KINDS, Kind
from support import eventually

from ingest.lab.servers import ValkeyServer
from ingest.queue.produce.producer import Producer

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

QUEUE = "nodes"
WARM_UP = 6.0
AT_ONCE = 100
# Of each program for each node, so that nodes wait for the same load, and few enough that no command times out.
CALLERS = 4
MEMBERS = 3
# Announced and not acked orders, so that neither side gets ahead.
MOST_OPEN = 2_000


@dataclass(frozen=True, slots=True)
class Load:
    """The simulated processes.

    Attributes:
        partitions: of the queue.
        nodes: for which there are processes.
        rate: orders per second, or 0 for as many as possible.
        programs: in which the processes run.
    """

    partitions: int
    nodes: int
    rate: float
    programs: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one measurement.

    Attributes:
        orders: enqueued, read and acked per second.
        redis: the cores that each server used, with its background work.
        programs: the cores that the simulated processes used.
    """

    orders: float
    redis: list[float]
    programs: float

    @property
    def cost(self) -> float:
        """µs of all servers for an order."""
        return sum(self.redis) / self.orders * 1e6


def program(url: str, load: Load, number: int, done: "Synchronized[int]") -> None:
    """Enqueue, read and ack until killed."""

    async def main() -> None:
        announced, callers, rate = 0, CALLERS * load.nodes, load.rate / load.programs
        async with (
            Fleet.open(
                url, QUEUE, MEMBERS * load.nodes, partitions=load.partitions, prefix=f"program-{number}"
            ) as fleet,
            Producer.connect(url, QUEUE, partitions=load.partitions) as producer,
        ):

            async def announce(caller: int) -> None:
                nonlocal announced
                began, sent = time.monotonic(), 0
                while True:
                    due = time.monotonic() - began >= sent * callers / rate if rate else True
                    if due and announced - fleet.taken.total() < MOST_OPEN * load.nodes:
                        announced += AT_ONCE
                        await producer.enqueue([f"order-{number}-{caller}-{sent + each}" for each in range(AT_ONCE)])
                        sent += AT_ONCE
                    else:
                        await asyncio.sleep(0.005)

            async def count() -> None:
                while True:
                    done.value = fleet.taken.total()
                    await asyncio.sleep(0.02)

            async with fleet.working(0.0), asyncio.TaskGroup() as tasks:
                tasks.create_task(count())
                for caller in range(callers):
                    tasks.create_task(announce(caller))

    uvloop.run(main())


@contextmanager
def programs(url: str, load: Load) -> Iterator[tuple[list[int], list["Synchronized[int]"]]]:
    """The process IDs of all programs, and their counters."""
    context = multiprocessing.get_context("spawn")
    counters = [context.Value("q", 0) for _ in range(load.programs)]
    started = [
        context.Process(target=program, args=(url, load, each, counter), daemon=True)
        for each, counter in enumerate(counters)
    ]
    for each in started:
        each.start()
    try:
        yield [each.pid or 0 for each in started], counters
    finally:
        for each in started:
            each.kill()
            each.join()


def used(server: ValkeyServer) -> float:
    """Seconds of the processor that all threads of a server have used."""
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


async def measure(url: str, servers: Sequence[ValkeyServer], load: Load, seconds: float) -> Outcome:
    """Run the load, and measure after a time to warm up."""
    with programs(url, load) as (pids, counters):

        def acked() -> int:
            return sum(counter.value for counter in counters)

        def of_programs() -> float:
            return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)

        await eventually(lambda: all(counter.value for counter in counters))
        await asyncio.sleep(WARM_UP)
        before, count, spent, began = [used(each) for each in servers], acked(), of_programs(), time.monotonic()
        await asyncio.sleep(seconds)
        span = time.monotonic() - began
        return Outcome(
            (acked() - count) / span,
            [(used(each) - earlier) / span for each, earlier in zip(servers, before, strict=True)],
            (of_programs() - spent) / span,
        )


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  what it is for


def described(outcome: Outcome) -> str:
    shares = " ".join(f"{each:.1%}" for each in outcome.redis)
    return (
        f"{outcome.orders:8,.0f} orders/s, Redis {shares} of a core, {outcome.cost:.1f} µs an order;"
        f" programs {outcome.programs:.0%} of a core"
    )


def opened(kind: Kind, folder: str, nodes: int, hosts: LimitedHosts | None) -> AbstractAsyncContextManager[Made]:
    """A cluster, or a standalone server as 0 nodes."""
    return cluster(kind, Path(folder), nodes, hosts) if nodes else standalone(kind, Path(folder), hosts)


def name_of(nodes: int) -> str:
    return f"cluster of {nodes}" if nodes else "standalone"


async def scale(kind: Kind, options: argparse.Namespace, groups: ControlGroups) -> None:
    """Measure each number of nodes with equal shares."""
    hosts = LimitedHosts(groups, Limits(options.share, 512 * MIB, options.period))
    of_one: dict[bool, float] = {}
    for nodes in (0, *options.nodes):
        servers = max(1, nodes)
        load = Load(options.partitions or servers, servers, 0.0, options.programs)
        with TemporaryDirectory(prefix="ingest-") as folder:
            async with opened(kind, folder, nodes, hosts) as made:
                outcome = await measure(*made, load, options.seconds)
        first = of_one.setdefault(bool(nodes), outcome.orders / servers)
        say(f"{name_of(nodes)}: {described(outcome)}; {outcome.orders / first / servers:.2f} x linear")


async def compare(kind: Kind, options: argparse.Namespace) -> None:
    """Measure the cost of an order on one server, and on clusters, in turn."""
    costs: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for nodes in (0, *options.nodes):
            load = Load(options.partitions or max(1, nodes), max(options.nodes), options.rate, options.programs)
            with TemporaryDirectory(prefix="ingest-") as folder:
                async with opened(kind, folder, nodes, None) as made:
                    outcome = await measure(*made, load, options.seconds)
            costs.setdefault(name_of(nodes), []).append(outcome.cost)
            say(f"{name_of(nodes)}: {described(outcome)}")
    for name, each in costs.items():
        say(f"{name}: {min(each):.1f} µs an order at best, {min(each) / min(costs['standalone']) - 1:+.0%}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="nodes", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--partitions", type=int, default=8, help="of the queue; 0 is one for each node")
    parser.add_argument(
        "--share", type=float, default=0.03, help="of a core for each server; 0 leaves the first part out"
    )
    parser.add_argument("--period", type=int, default=50_000, help="µs in which a server may use its share")
    parser.add_argument("--rate", type=float, default=5000.0, help="orders per second for the comparison of costs")
    parser.add_argument("--rounds", type=int, default=2, help="of the comparison; 0 leaves the second part out")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--programs", type=int, default=2)
    parser.add_argument("--kind", choices=[kind.name for kind in KINDS], default=KINDS[0].name)
    options = parser.parse_args()
    kind = next(kind for kind in KINDS if kind.name == options.kind)
    if options.share:
        with control_groups() as groups:
            uvloop.run(scale(kind, options, groups))
    if options.rounds:
        uvloop.run(compare(kind, options))


if __name__ == "__main__":
    main()
