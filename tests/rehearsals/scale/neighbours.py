"""Measures how long orders of one source wait beside another source in trouble: `make neighbours ARGS="--busy 2 --rounds 5"`.

Source b enqueues small orders at a steady rate. Source a has a backlog of large documents or of bodies that decompress to more than the
limit, or the worker processes are killed six times with its large documents in flight. Each round measures each trouble once, in turn with
b alone. Prints a table with the median of the rounds, and fails if a lease was lost, or if the 99th percentile of b is more than three times
as long as without orders of a, with the same kills.
"""

import argparse
import asyncio
import gzip
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

import psutil
import uvloop
from redis import Redis
from rehearsals.scale.rehearsal import Worker, happens, say, table

from ingest.bench.stage import Stage, stage
from ingest.domain.source_name import queue_of
from ingest.lab.servers.server import free_port
from ingest.queue.layout.keys import Keys

_HEADS = (
    "beside", "b's orders", "p50, s", "p99, s", "largest, s", "p99 / nothing", "p99 / without a",
    "a's orders", "leases lost",
)  # fmt: skip
_LINE = '{"sku":"85123A","description":"WHITE HANGING HEART T-LIGHT HOLDER","quantity":6,"unit_price":"2.55"}'
_LARGE_LINES = 39_000  # 4,000,000 bytes
_BOMB = gzip.compress(b" " * 64 * 1024 * 1024)
_KILLS = 6
_TIMES = 3.0
# The kind of a's orders, and whether processes are killed. The kills delay b even without a.
_ROWS: Mapping[str, tuple[str, bool]] = {
    "nothing": ("", False),
    "4 MB bodies": ("large", False),
    "gzip bombs": ("bomb", False),
    "six kills": ("", True),
    "six kills with 4 MB bodies": ("large", True),
}


class Result(NamedTuple):
    """The seconds that b's orders waited, the stored orders of a, and the lost leases."""

    waits: list[float]
    stored: int
    lost: int

    def quantile(self, share: float) -> float:
        """A quantile of the waits."""
        return sorted(self.waits)[min(len(self.waits) - 1, int(share * len(self.waits)))]


def serve(port: int) -> None:
    """Serve a's documents: large ones, bombs for every second `bomb-…`, and small ones for the others."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                while await reader.readline() != b"\r\n":
                    pass
                order_id = line.split()[1].rpartition(b"/")[2].decode()
                kind, _, number = order_id.partition("-")
                encoding, body = "", _document(order_id, _LARGE_LINES if kind == "large" else 1)
                if kind == "bomb" and int(number) % 2:
                    encoding, body = "Content-Encoding: gzip\r\n", _BOMB
                await asyncio.sleep(0.1)
                writer.write(f"HTTP/1.1 200 OK\r\n{encoding}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async def run() -> None:
        async with await asyncio.start_server(respond, "127.0.0.1", port) as server:
            await server.serve_forever()

    uvloop.run(run())


def _document(order_id: str, lines: int) -> bytes:
    head = '"status":"placed","placed_at":"2026-01-02T03:04:05Z","updated_at":null,"currency":"GBP","customer_id":null,"country":null'
    return f'{{"id":"{order_id}",{head},"lines":[{",".join([_LINE] * lines)}]}}'.encode()


def spin() -> None:
    """Use a core."""
    while True:
        pass


async def measure(on: Stage, kind: str, options: argparse.Namespace, *, kills: bool) -> Result:
    """Run b beside one trouble."""
    worker = Worker(on, "worker", processes=2)
    keys = {name: Keys.of(queue_of(on.stream, name)) for name in "ab"}
    try:
        await worker.is_served()
        await asyncio.sleep(5.0)
        if kind:
            _enqueue(on.redis, keys["a"], [f"{kind}-{number}" for number in range(options.backlog)])
        killing = asyncio.create_task(_kill(worker, options.seconds)) if kills else None
        began, count = time.monotonic(), 0
        while (now := time.monotonic()) < began + options.seconds:
            due = int((now - began) * options.rate)
            _enqueue(on.redis, keys["b"], [f"order-{number}" for number in range(count, due)])
            count = max(count, due)
            await asyncio.sleep(0.02)
        if killing is not None:
            await killing

        async def are_stored() -> bool:
            [(stored,)] = on.sql("SELECT count(*) FROM orders WHERE source = 'b'")
            return bool(stored == count)

        if not await happens(are_stored, 120.0):
            raise worker.process.failed("has not stored all orders of b")
    finally:
        worker.process.stop(60)
    waits = on.sql("SELECT extract(epoch FROM ingested_at - enqueued_at)::float8 FROM orders WHERE source = 'b'")
    [(stored,)] = on.sql("SELECT count(*) FROM orders WHERE source = 'a'")
    lost = (on.home / "worker.log").read_text(errors="replace").count("lease_lost")
    return Result([wait for (wait,) in waits], stored, lost)


def _enqueue(redis: Redis, keys: Keys, order_ids: list[str]) -> None:
    with redis.pipeline(transaction=False) as pipe:
        for order_id in order_ids:
            pipe.xadd(keys.stream, {"order_id": order_id, "enqueued_at": str(int(time.time() * 1000))})
        pipe.execute()


async def _kill(worker: Worker, seconds: float) -> None:
    """End the worker processes in turn, as the kernel does when memory is short."""
    for number in range(_KILLS):
        await asyncio.sleep(seconds / (_KILLS + 1))
        children = [child for child in psutil.Process(worker.process.pid).children() if "spawn" not in child.name()]
        victim = sorted(children, key=lambda child: child.memory_info().rss)[-1 - number % 2]
        victim.kill()


def run(kind: str, options: argparse.Namespace, *, kills: bool) -> Result:
    """One measurement, with its own servers."""
    port = free_port()
    context = multiprocessing.get_context("fork")
    helpers = [
        context.Process(target=serve, args=(port,), daemon=True),
        *(context.Process(target=spin, daemon=True) for _ in range(options.busy)),
    ]
    for helper in helpers:
        helper.start()
    try:
        with stage() as on:
            on.migrate()
            api = on.api("--latency", "0.1")
            file = on.home / "sources.toml"
            file.write_text(
                f'[sources.a]\nupstream.url = "http://127.0.0.1:{port}/{{order_id}}"\n'
                f'[sources.b]\nupstream.url = "{api.url}"\n'
            )
            on.commands.configure({"INGEST_SOURCES": str(file), "INGEST_LOG_FORMAT": "json"})
            return uvloop.run(measure(on, kind, options, kills=kills))
    finally:
        for helper in helpers:
            helper.kill()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=0, help="processes that use a core each")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each trouble, in turn")
    parser.add_argument("--rate", type=float, default=40.0, help="orders of b per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of one measurement")
    parser.add_argument("--backlog", type=int, default=400, help="orders of a")
    parser.add_argument("--only", action="append", choices=list(_ROWS), help="may be given again")
    options = parser.parse_args()
    results: dict[str, list[Result]] = {name: [] for name in _ROWS if options.only is None or name in options.only}
    for number in range(options.rounds):
        for name, found in results.items():
            kind, kills = _ROWS[name]
            result = run(kind, options, kills=kills)
            found.append(result)
            say(f"round {number + 1}, beside {name}: p50 {result.quantile(0.5):.2f}, p99 {result.quantile(0.99):.2f} s")
    rows, failed = [], False
    p99s = {name: median(result.quantile(0.99) for result in found) for name, found in results.items()}
    for name, found in results.items():
        alone, same = (
            p99s.get(without, p99s[name]) for without in ("nothing", "six kills" if _ROWS[name][1] else "nothing")
        )
        lost = sum(result.lost for result in found)
        failed = failed or lost > 0 or p99s[name] > _TIMES * same
        orders, stored = sum(len(result.waits) for result in found), sum(result.stored for result in found)
        rows.append([
            name, f"{orders:,}", f"{median(result.quantile(0.5) for result in found):.2f}", f"{p99s[name]:.2f}",
            f"{max(max(result.waits) for result in found):.2f}", f"{p99s[name] / alone:.1f}", f"{p99s[name] / same:.1f}",
            f"{stored:,}", f"{lost}",
        ])  # fmt: skip
    print(table(_HEADS, rows))  # noqa: T201  what it is for
    print("load of the machine:", *(f"{load:.1f}" for load in os.getloadavg()))  # noqa: T201  as above
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
