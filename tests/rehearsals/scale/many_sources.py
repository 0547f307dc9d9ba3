"""Measures one worker process with many sources, idle and after a burst: `make many-sources ARGS="--sources 1 --sources 200"`.

Prints a table with a row for each number of sources. Other work on the machine lengthens the burst, so the load is printed as well.
"""

import argparse
import asyncio
import os
import sys
import time
from statistics import median
from urllib.request import urlopen

import uvloop
from redis import Redis
from rehearsals.scale.rehearsal import Worker, happens, say, table

from ingest.bench.stage import Stage, stage
from ingest.domain.source_name import queue_of
from ingest.lab.usage import cpu_seconds
from ingest.queue.layout.keys import Keys

_HEADS = (
    "sources", "connections", "blocked", "idle CPU, % of a core", "commands/s to Redis", "orders of the burst",
    "burst, s", "CPU of the burst, s", "/metrics idle, bytes", "/metrics after the burst, bytes", "CPU of a scrape, s",
)  # fmt: skip
_SCRAPES = 5
_START_SECONDS, _BURST_SECONDS = 300.0, 300.0


async def measure(on: Stage, sources: int, options: argparse.Namespace) -> list[str]:
    """One row of the table."""
    queues = [Keys.of(queue_of(on.stream, f"shop-{number:03}")) for number in range(sources)]
    worker = Worker(on, f"worker-{sources}")
    try:
        await worker.is_served()

        async def are_alive() -> bool:
            with on.redis.pipeline(transaction=False) as pipe:
                for keys in queues:
                    pipe.zcard(keys.alive)
                return all(pipe.execute())

        if not await happens(are_alive, _START_SECONDS):
            raise worker.process.failed("has not opened all sources")
        say(f"{sources} sources are open; idle for {options.settle:.0f} s and {options.idle:.0f} s")
        await asyncio.sleep(options.settle)
        used, asked, began = cpu_seconds(worker.process.pid), _commands(on.redis), time.monotonic()
        connections, blocked = [], []
        while time.monotonic() < began + options.idle:
            clients = on.redis.client_list()
            # Without the connection of this program.
            connections.append(len(clients) - 1)
            blocked.append(sum("b" in client["flags"] for client in clients))
            await asyncio.sleep(0.5)
        span = time.monotonic() - began
        idle = (cpu_seconds(worker.process.pid) - used) / span
        commands = (_commands(on.redis) - asked) / span
        page, cpu = _scrape(worker)
        say(f"a burst of {options.burst} orders in each")
        began, used = time.monotonic(), cpu_seconds(worker.process.pid)
        _announce(on.redis, queues, options.burst)
        found = await happens(lambda: _are_stored(on, sources * options.burst), _BURST_SECONDS, every=0.02)
        burst, spent = time.monotonic() - began, cpu_seconds(worker.process.pid) - used
        after, _ = _scrape(worker)
    finally:
        worker.process.stop(30)
    return [
        f"{sources:,}", f"{median(connections):.0f} (at most {max(connections)})", f"{max(blocked)}", f"{100 * idle:.1f}", f"{commands:.1f}",
        f"{sources * options.burst:,}", f"{burst:.1f}" if found else "not stored", f"{spent:.1f}", f"{page:,}", f"{after:,}", f"{cpu:.2f}",
    ]  # fmt: skip


def _commands(redis: Redis) -> int:
    """Commands of clients. The commands of scripts are counted under their own names, and none of them reads a group."""
    stats = redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "xreadgroup"))


def _scrape(worker: Worker) -> tuple[int, float]:
    """The bytes of the page, and the CPU seconds of one scrape."""
    pages, used = [], cpu_seconds(worker.process.pid)
    for _ in range(_SCRAPES):
        with urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=60) as response:
            pages.append(len(response.read()))
    return pages[-1], (cpu_seconds(worker.process.pid) - used) / _SCRAPES


def _announce(redis: Redis, queues: list[Keys], count: int) -> None:
    with redis.pipeline(transaction=False) as pipe:
        for keys in queues:
            for number in range(count):
                pipe.xadd(keys.stream, {"order_id": f"order-{number}"})
        pipe.execute()


async def _are_stored(on: Stage, orders: int) -> bool:
    [(stored,)] = on.sql("SELECT count(*) FROM orders")
    return bool(stored == orders)


def run(sources: int, options: argparse.Namespace) -> list[str]:
    """One row, with servers of its own."""
    with stage() as on:
        on.migrate()
        api = on.api("--latency", "0.1-0.2")
        file = on.home / "sources.toml"
        file.write_text(
            "".join(f'[sources.shop-{number:03}]\nupstream.url = "{api.url}"\n' for number in range(sources))
        )
        on.commands.configure({"INGEST_SOURCES": str(file), "INGEST_CONCURRENCY": str(options.concurrency)})
        return uvloop.run(measure(on, sources, options))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=int, action="append", help="may be given again (1, 50, 200, 400)")
    parser.add_argument("--burst", type=int, default=10, help="orders for each source")
    parser.add_argument("--concurrency", type=int, default=400, help="INGEST_CONCURRENCY")
    parser.add_argument("--settle", type=float, default=15.0, help="seconds after the start that are not measured")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds that are measured")
    options = parser.parse_args()
    rows = [run(sources, options) for sources in options.sources or [1, 50, 200, 400]]
    print(table(_HEADS, rows))  # noqa: T201  what it is for
    print("load of the machine:", *(f"{load:.1f}" for load in os.getloadavg()))  # noqa: T201  as above
    return 0


if __name__ == "__main__":
    sys.exit(main())
