"""Measures the cost of a fleet of worker processes in Redis: `make fleet ARGS="--processes 1000 --rate 5000"`.

The processes of the fleet are connections of a few programs, which make the calls of the service's own parts without
fetching or storing orders. The usage of Redis is its thread's CPU time.
"""

import argparse
import asyncio
import multiprocessing
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from redis.asyncio import Redis
from scale.fleet import Fleet
from servers.kinds import KINDS, Kind
from support import becomes

from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer

QUEUE = "fleet"
KEYS = Keys.of(QUEUE)
LIFETIME = 6.0
# Seconds of the external API.
LATENCY = 0.15
PROGRAMS = 2
WARM_UP = 8.0


def part_of_fleet(url: str, processes: int, number: int) -> None:
    """Run one program with its share of the processes until it is stopped."""

    async def main() -> None:
        async with Fleet.open(url, QUEUE, processes, lifetime=LIFETIME, prefix=f"program-{number}") as fleet:
            await fleet.send_heartbeats()
            async with fleet.working(LATENCY):
                await asyncio.Event().wait()

    uvloop.run(main())


async def announce(url: str, rate: int, at_once: int) -> None:
    """Announce orders at this rate in batches."""
    every = at_once / rate
    async with Producer.connect(url, QUEUE) as producer:
        for number in range(1_000_000):
            started = time.monotonic()
            await producer.enqueue(f"order-{number}-{order}" for order in range(at_once))
            await asyncio.sleep(max(0.0, every - (time.monotonic() - started)))


async def used(redis: Redis) -> float:
    """Seconds of the processor that the thread which answers has used."""
    facts = await redis.info("cpu")
    return float(facts["used_cpu_user_main_thread"] + facts["used_cpu_sys_main_thread"])


async def measure(redis: Redis, url: str, seconds: float, rate: int, at_once: int) -> None:
    """Print the usage and the calls of Redis over this number of seconds."""
    announcing = asyncio.create_task(announce(url, rate, at_once)) if rate else None
    await asyncio.sleep(WARM_UP)
    await redis.config_resetstat()
    before, began, added = await used(redis), time.monotonic(), await entries(redis)
    await asyncio.sleep(seconds)
    share = (await used(redis) - before) / (time.monotonic() - began)
    span = time.monotonic() - began
    stats = await redis.info("commandstats")
    asked = {name: stats.get(f"cmdstat_{name}", {}).get("calls", 0) / span for name in ("evalsha", "xreadgroup")}
    clients = await redis.info("clients")
    print(  # noqa: T201  what it is for
        f"  {share:6.1%} of a core; {asked['xreadgroup']:,.0f} reads and {asked['evalsha']:,.0f} scripts a second; "
        f"{(await entries(redis) - added) / span:,.0f} orders a second; {clients['connected_clients']:,} connections, "
        f"{clients['blocked_clients']} blocked; backlog {await redis.xlen(KEYS.stream):,}"
    )
    if announcing:
        announcing.cancel()


async def entries(redis: Redis) -> int:
    """How many entries the stream has ever had."""
    return int((await redis.xinfo_stream(KEYS.stream))["entries-added"])


async def run(kind: Kind, processes: int, rates: list[int], seconds: float, at_once: int) -> None:
    """One kind of server, at each rate."""
    with TemporaryDirectory(prefix="ingest-") as folder, kind.server(Path(folder) / "server") as server:
        context = multiprocessing.get_context("spawn")
        programs = [
            context.Process(target=part_of_fleet, args=(server.url, processes // PROGRAMS, number), daemon=True)
            for number in range(PROGRAMS)
        ]
        for program in programs:
            program.start()
        async with Redis.from_url(server.url, socket_timeout=60) as redis:
            await becomes(lambda: redis.zcard(KEYS.alive), processes // PROGRAMS * PROGRAMS, within=120.0)
            for rate in rates:
                print(f"{kind.name}, {processes:,} processes, {rate:,} orders/s:", flush=True)  # noqa: T201  as above
                await measure(redis, server.url, seconds, rate, at_once)
        for program in programs:
            program.kill()
            program.join()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--rate", type=int, action="append", help="orders per second; may be given again; 0 is idle")
    parser.add_argument("--at-once", type=int, default=20, help="orders of one announcement")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--kind", choices=[kind.name for kind in KINDS], action="append")
    options = parser.parse_args()
    for kind in KINDS:
        if not options.kind or kind.name in options.kind:
            uvloop.run(run(kind, options.processes, options.rate or [0, 5000], options.seconds, options.at_once))


if __name__ == "__main__":
    main()
