"""Measures the cost of a fleet of worker processes in Redis: `make fleet ARGS="--processes 1000 --rate 5000"`.

The processes of the fleet are connections of a few programs, which make the calls of the service's own parts without
fetching or storing orders. The usage of Redis is its thread's CPU time.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from redis.asyncio import Redis
from rehearsals.scale.fleet import Fleet
from rehearsals.scale.limited_servers import cluster, standalone
from servers.kinds import KINDS, Kind
from support import becomes

from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

QUEUE = "fleet"
LIFETIME = 6.0
# Seconds of the external API.
LATENCY = 0.15
PROGRAMS = 2
WARM_UP = 8.0
_HOUR = 3600.0


def part_of_fleet(url: str, partitions: int, processes: int, number: int) -> None:
    """Run one program with its share of the processes until it is stopped."""

    async def main() -> None:
        opened = Fleet.open(url, QUEUE, processes, partitions=partitions, lifetime=LIFETIME, prefix=f"program-{number}")
        async with opened as fleet:
            await fleet.send_heartbeats()
            async with fleet.working(LATENCY):
                await asyncio.Event().wait()

    uvloop.run(main())


async def announce(url: str, partitions: int, rate: int, at_once: int) -> None:
    """Announce orders at this rate in batches."""
    every = at_once / rate
    async with Producer.connect(url, QUEUE, partitions=partitions) as producer:
        for number in range(1_000_000):
            started = time.monotonic()
            await producer.enqueue(f"order-{number}-{order}" for order in range(at_once))
            await asyncio.sleep(max(0.0, every - (time.monotonic() - started)))


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one server.

    Attributes:
        cpu: seconds of the processor that the thread which serves clients has used.
        scripts: calls of scripts.
        reads: calls of XREADGROUP, including calls by scripts.
        entries: that the streams have ever had.
        left: entries in the streams.
        connections: of clients, and how many of them wait in a read.
    """

    cpu: float
    scripts: int
    reads: int
    entries: int
    left: int
    connections: int
    blocked: int

    @classmethod
    async def of(cls, redis: Redis) -> "Counts":
        """Those of now."""
        cpu, stats, clients = [await redis.info(section) for section in ("cpu", "commandstats", "clients")]
        streams = [await redis.xinfo_stream(key) async for key in redis.scan_iter("ingest:*:stream", count=1000)]
        return cls(
            cpu=float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]),
            scripts=stats.get("cmdstat_evalsha", {}).get("calls", 0),
            reads=stats.get("cmdstat_xreadgroup", {}).get("calls", 0),
            entries=sum(int(stream["entries-added"]) for stream in streams),
            left=sum(int(stream["length"]) for stream in streams),
            connections=int(clients["connected_clients"]),
            blocked=int(clients["blocked_clients"]),
        )


async def measure(servers: Sequence[Redis], url: str, partitions: int, seconds: float, rate: int, at_once: int) -> None:
    """Print the usage and the calls of Redis over this number of seconds."""
    announcing = asyncio.create_task(announce(url, partitions, rate, at_once)) if rate else None
    await asyncio.sleep(WARM_UP)
    before, began = [await Counts.of(redis) for redis in servers], time.monotonic()
    await asyncio.sleep(seconds)
    after, span = [await Counts.of(redis) for redis in servers], time.monotonic() - began
    shares = [(now.cpu - then.cpu) / span for then, now in zip(before, after, strict=True)]
    each = f" (of each server: {min(shares):.1%} to {max(shares):.1%})" if len(servers) > 1 else ""
    scripts, reads, orders = (
        sum(getattr(now, name) - getattr(then, name) for then, now in zip(before, after, strict=True)) / span
        for name in ("scripts", "reads", "entries")
    )
    print(  # noqa: T201  what it is for
        f"  {sum(shares):6.1%} of a core{each}; {scripts:,.0f} scripts and {reads:,.0f} reads a second; {orders:,.0f} orders a second; "
        f"{sum(now.connections for now in after):,} connections, at most {max(now.connections for now in after):,} of a server, "
        f"{sum(now.blocked for now in after)} blocked; backlog {sum(now.left for now in after):,}"
    )
    if announcing:
        announcing.cancel()


async def run(kind: Kind, options: argparse.Namespace) -> None:
    """One kind of server, at each rate."""
    processes, partitions = options.processes // PROGRAMS * PROGRAMS, options.partitions
    with TemporaryDirectory(prefix="ingest-") as folder:
        made = (
            cluster(kind, Path(folder), options.nodes, None) if options.nodes else standalone(kind, Path(folder), None)
        )
        async with made as (url, servers), AsyncExitStack() as stack:
            context = multiprocessing.get_context("spawn")
            programs = [
                context.Process(
                    target=part_of_fleet, args=(url, partitions, processes // PROGRAMS, number), daemon=True
                )
                for number in range(PROGRAMS)
            ]
            for program in programs:
                program.start()
                stack.callback(program.join)
                stack.callback(program.kill)
            clients = [
                await stack.enter_async_context(Redis.from_url(server.url, socket_timeout=60)) for server in servers
            ]
            watching = await stack.enter_async_context(control_client(url))
            for queue in Layout(QUEUE, partitions).current:
                alive = Keys.of(queue).alive
                await becomes(partial(watching.zcard, alive), processes, within=300.0)
                further = {
                    f"elsewhere-{number}": (time.time() + _HOUR) * 1000 for number in range(options.of - processes)
                }
                if further:
                    await watching.zadd(alive, further)
            where = f"a cluster of {options.nodes} nodes" if options.nodes else "one server"
            for rate in options.rate or [0, 5000]:
                print(  # noqa: T201  as above
                    f"{kind.name}, {where}, {partitions} partitions, {processes:,} of {max(processes, options.of):,} processes,"
                    f" {rate:,} orders/s:",
                    flush=True,
                )
                await measure(clients, url, partitions, options.seconds, rate, options.at_once)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument(
        "--of", type=int, default=0, help="processes of the whole fleet, of which others only seem to be alive"
    )
    parser.add_argument("--rate", type=int, action="append", help="orders per second; may be given again; 0 is idle")
    parser.add_argument("--at-once", type=int, default=20, help="orders of one announcement")
    parser.add_argument("--nodes", type=int, default=0, help="of a cluster; 0 is one server without a cluster (0)")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--kind", choices=[kind.name for kind in KINDS], action="append")
    options = parser.parse_args()
    for kind in KINDS:
        if not options.kind or kind.name in options.kind:
            uvloop.run(run(kind, options))


if __name__ == "__main__":
    main()
