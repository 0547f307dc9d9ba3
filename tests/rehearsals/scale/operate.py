"""Measures the console, the lists of the HTTP API, `ingest order show` and a bulk replay with a large queue: `make operate-scale`.

Three sources have millions of queued orders, and hundreds of thousands of retries and dead letters. Workers run all the time. Their
throughput is compared between times without visitors and times in which visitors open pages and watch the overview.
"""

import argparse
import asyncio
import hashlib
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import uvloop
from redis.asyncio import Redis
from rehearsals.scale.bulk_replay import BulkReplay
from rehearsals.scale.crawl import Crawler
from rehearsals.scale.operations_data import SOURCES, DataSize, load
from rehearsals.scale.rehearsal import Findings, say, table

from ingest.bench.stage import Stage, stage
from ingest.lab.http_api import wait_until_served
from ingest.lab.servers.server import free_port
from ingest.lab.session import orderly_exit
from ingest.queue.redis.scripts import script_text

PAGE_SECONDS, SHOW_SECONDS, SLOW_MS, LEAST_SHARE, LEAST_REPLAYED = 0.5, 1.0, 20.0, 0.9, 20_000
_FILTERS = (
    "/console/orders?source=shop-de&prefix=stored-4711", "/console/orders?source=shop-de&status=shipped",
    "/console/orders?source=shop-de&attribute=customer%3Dc-4711", "/console/dead-letters?source=shop-de&reason=invalid_order",
    "/console/dead-letters?source=warehouse&text=total_price_set", "/console/retries?source=shop-uk&reason=timeout",
    "/console/orders/show?source=shop-de&id=order-1200000", "/console/orders/show?source=shop-de&id=stored-4711", "/console/orders/show?source=shop-uk&id=dead-77",
)  # fmt: skip
_ORDERS = ("order-77", "order-1200000", "retry-4711", "dead-4711", "stored-4711", "missing")


class Measurement:
    """All measurements on one stage.

    Args:
        on: with the data loaded.
        options: of the command.
        findings: receives all figures and violations.
    """

    def __init__(self, on: Stage, options: argparse.Namespace, findings: Findings) -> None:
        self._on = on
        self._options = options
        self._findings = findings
        self._metrics, self._port = free_port(), free_port()
        self._url = f"http://127.0.0.1:{self._port}"

    async def run(self, redis: Redis, http: aiohttp.ClientSession) -> None:
        """Measure everything."""
        await self._start()
        await redis.config_set("slowlog-max-len", 10_000)
        await redis.config_set("slowlog-log-slower-than", int(SLOW_MS * 1000))
        await redis.slowlog_reset()
        crawler = await self._pages(http)
        await self._slow(redis, "pages and lists")
        await self._throughput(http, crawler)
        await self._slow(redis, "visitors")
        await self._show()
        await self._slow(redis, "order show")
        await self._replay(redis)
        await self._slow(redis, "the replay")

    async def _start(self) -> None:
        api = self._on.api("--latency", "0.1-0.2")
        lines = [f'[sources.{name}]\nupstream = {{ url = "{api.url}" }}\n' for name in SOURCES]
        file = self._on.home / "sources.toml"
        file.write_text("\n".join(lines))
        rate = str(self._options.concurrency)
        self._on.commands.configure({"INGEST_SOURCES": str(file), "INGEST_CONCURRENCY": rate})
        self._worker = worker = self._on.commands.start(
            "worker", "--processes", "1", INGEST_METRICS_PORT=str(self._metrics)
        )
        served = self._on.commands.start("api", INGEST_API_PORT=str(self._port), INGEST_API_METRICS_PORT="0")
        await asyncio.to_thread(wait_until_served, [worker], self._metrics)
        await asyncio.to_thread(wait_until_served, [served], self._port)

    async def _pages(self, http: aiohttp.ClientSession) -> Crawler:
        crawler = Crawler(http, self._url)
        await crawler.open("/console/")  # the first snapshot
        for round_number in range(self._options.rounds):
            if round_number == 1:
                crawler.times.seconds.clear()  # of a process that has just started, and examines the dead letters
            await crawler.console(*_FILTERS)
            await crawler.lists(SOURCES, _ORDERS)
        most = crawler.times.most()
        rows = [
            [kind, f"{median(crawler.times.seconds[kind]):.3f}", f"{seconds:.3f}"] for kind, seconds in most.items()
        ]
        print(table(["page or list", "median s", "longest s"], rows))  # noqa: T201  what it is for
        self._findings.figures |= {"pages and lists": len(most), "longest response (s)": f"{max(most.values()):.3f}"}
        for kind, seconds in most.items():
            self._findings.require(seconds < PAGE_SECONDS, f"{kind} took {seconds:.2f} s")
        self._findings.require(not crawler.times.failed, f"responses failed: {crawler.times.failed}")
        return crawler

    async def _throughput(self, http: aiohttp.ClientSession, crawler: Crawler) -> None:
        """Alternate between times with and without visitors."""
        paths = list(dict.fromkeys(crawler.paths))
        rates: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * self._options.turns):
            is_visited = bool(turn % 2)
            async with self._visitors(http, paths) if is_visited else _nobody():
                await asyncio.sleep(2)
                rates[is_visited].append(await self._rate(http, self._options.seconds))
        without, visited = median(rates[False]), median(rates[True])
        self._findings.figures |= {
            "orders/s without visitors": f"{without:.0f}",
            f"orders/s with {self._options.visitors} visitors": f"{visited:.0f} ({visited / without:.0%})",
        }
        self._findings.require(
            visited >= LEAST_SHARE * without, f"visitors slow workers down to {visited / without:.0%}"
        )

    async def _rate(self, http: aiohttp.ClientSession, seconds: float) -> float:
        before, began = await self._stored(http), time.monotonic()
        await asyncio.sleep(seconds)
        return (await self._stored(http) - before) / (time.monotonic() - began)

    async def _stored(self, http: aiohttp.ClientSession) -> float:
        async with http.get(f"http://127.0.0.1:{self._metrics}/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("ingest_orders_total{"))

    @asynccontextmanager
    async def _visitors(self, http: aiohttp.ClientSession, paths: list[str]) -> AsyncIterator[None]:
        """Each opens another page every second, and keeps the overview open, which is updated live."""

        async def browse(first: int) -> None:
            for number in range(first, first + 1_000_000):
                async with http.get(self._url + paths[number * 7 % len(paths)]) as response:
                    await response.read()
                await asyncio.sleep(1)

        async def watch() -> None:
            async with http.get(f"{self._url}/console/events/overview", timeout=aiohttp.ClientTimeout(None)) as events:
                async for _ in events.content.iter_any():
                    pass

        tasks = [asyncio.create_task(browse(number)) for number in range(self._options.visitors)]
        tasks += [asyncio.create_task(watch()) for _ in range(self._options.visitors)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait(tasks)

    async def _show(self) -> None:
        for order_id in _ORDERS:
            started = time.perf_counter()
            command = self._on.commands.start("order", "show", order_id, "--source", SOURCES[0])
            await asyncio.to_thread(command.has_ended, 60)
            seconds = time.perf_counter() - started
            self._findings.figures[f"order show {order_id} (s)"] = f"{seconds:.2f}"
            self._findings.require(seconds < SHOW_SECONDS, f"order show {order_id} took {seconds:.2f} s")

    async def _replay(self, redis: Redis) -> None:
        # The workers would process the replayed orders, and hide the second copy of an order.
        await asyncio.to_thread(self._worker.stop, 60)
        found = await BulkReplay(self._on, redis, SOURCES).run()
        self._findings.figures |= {f"replay: {name}": f"{value:.0f}" for name, value in asdict(found).items()}
        require = self._findings.require
        require(found.per_second >= LEAST_REPLAYED, f"{found.per_second:.0f} dead letters were replayed per second")
        require(not found.left + found.lost + found.doubled, f"the replay was not exact: {found}")
        require(found.done == self._options.dead, f"the jobs count {found.done} dead letters")

    async def _slow(self, redis: Redis, during: str) -> None:
        """Note commands that took longer than 20 ms."""
        entries: list[Any] = await redis.slowlog_get(10_000)
        await redis.slowlog_reset()
        found = [(entry["duration"] / 1000, _named(entry["command"])) for entry in entries]
        self._findings.figures[f"commands over {SLOW_MS:.0f} ms during {during}"] = len(found)
        self._findings.require(not found, f"during {during}, Redis was busy for {sorted(found, reverse=True)[:3]}")


def _named(command: bytes) -> str:
    """A command with the name of its script."""
    text = command[:120].decode(errors="replace")
    for sha, name in _scripts().items():
        text = text.replace(sha, name)
    return text


@cache
def _scripts() -> dict[str, str]:
    """The names of all scripts by their SHA-1."""
    names = [file.name.removesuffix(".lua") for file in files("ingest.queue.lua").iterdir() if file.name[0] != "_"]
    kinds = (("", ""), (" (combined)", "combined"))
    texts = [
        (f"{name}{kind}", script_text(name, within=within, has_xnack=has_xnack))
        for name in names
        for has_xnack in (False, True)
        for kind, within in kinds
    ]
    texts += [(f"{name} (step)", script_text(name, within="job_step")) for name in names]
    return {hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(): name for name, text in texts}


@asynccontextmanager
async def _nobody() -> AsyncIterator[None]:
    yield


async def run(on: Stage, options: argparse.Namespace) -> int:
    """Load the data, measure, and return the exit code."""
    findings = Findings("operate")
    size = DataSize(options.queued, options.retries, options.dead, options.stored)
    async with Redis.from_url(on.redis_url, socket_timeout=60) as redis, aiohttp.ClientSession() as http:
        # As on its own host. Otherwise the log of slow commands contains the times of other processes.
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, int((await redis.info("server"))["process_id"]), -19)
        began = time.monotonic()
        await load(redis, on.postgres_dsn, on.stream, size)
        say(f"loaded {size} in {time.monotonic() - began:.0f} s")
        await Measurement(on, options, findings).run(redis, http)
    return findings.conclude(options.json)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=5_000_000)
    parser.add_argument("--retries", type=int, default=300_000)
    parser.add_argument("--dead", type=int, default=300_000)
    parser.add_argument("--stored", type=int, default=1_000_000, help="rows in the table of orders")
    parser.add_argument("--concurrency", type=int, default=30, help="orders in flight")
    parser.add_argument("--visitors", type=int, default=3, help="visitors of the console")
    parser.add_argument("--turns", type=int, default=3, help="times with visitors, and as many without")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each time")
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each page is opened, the first time not counted"
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with orderly_exit() as stack:
        on = stack.enter_context(stage())
        on.migrate()
        return uvloop.run(run(on, options))


if __name__ == "__main__":
    sys.exit(main())
