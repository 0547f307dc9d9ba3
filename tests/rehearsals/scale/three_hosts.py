"""Rehearses three hosts of 15 processes with 10 orders in flight each, of which one loses its network for a minute.

Run it with `make rehearse-hosts`. The hosts are network namespaces. Orders are announced at a steady rate. A burst is
announced just before the link of the first host goes down, so that it holds orders.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop
from redis.exceptions import ResponseError
from rehearsals.scale.control_groups import require_root
from rehearsals.scale.hosts import HERE, Network, network
from rehearsals.scale.rehearsal import Announcer, Findings, Worker, drained, happens, say

from ingest.bench.stage import Stage, stage
from ingest.lab.session import orderly_exit
from ingest.queue.produce.producer import Producer

_STORED_WITHIN = 10.0
_SECONDS_TO_START = 60.0
# A process that has not heard from Redis for a minute connects again within this time.
_SECONDS_TO_RETURN = 60.0
_STEADY_SECONDS = 15.0
_HOST = 1


class Watcher:
    """Observes the entries of one host and their results."""

    def __init__(self, on: Stage, host: str) -> None:
        self._on = on
        self._host = host.encode()

    def held(self) -> set[str]:
        """The orders that were delivered to the host, and are not acked."""
        return {
            order_id for stream in (self._on.keys().stream, self._on.keys().express) for order_id in self._of(stream)
        }

    def stored(self, order_ids: set[str]) -> int:
        """How many of these orders are stored."""
        return sum(order_id in order_ids for (order_id,) in self._on.sql("SELECT order_id FROM orders"))

    def alive(self) -> int:
        """The number of processes of the host with a heartbeat."""
        seconds, _ = self._on.redis.time()
        names: Any = self._on.redis.zrangebyscore(self._on.keys().alive, seconds * 1000, "+inf")
        return sum(name.startswith(self._host) for name in names)

    def _of(self, stream: str) -> Iterator[str]:
        redis: Any = self._on.redis
        entries = []
        with suppress(ResponseError):  # the lane has not been used
            entries = redis.xpending_range(stream, "ingest", min="-", max="+", count=10_000)
        for entry in entries:
            if entry["consumer"].startswith(self._host):
                for _, fields in redis.xrange(stream, entry["message_id"], entry["message_id"]):
                    yield fields[b"order_id"].decode()


class Rehearsal:
    """Steady load, burst and outage, recovery, drained queue, and the reconciliation."""

    def __init__(self, on: Stage, net: Network, options: argparse.Namespace) -> None:
        self._on = on
        self._net = net
        self._options = options
        self._watcher = Watcher(on, net.name(_HOST))
        self._announcer = Announcer()
        self.findings = Findings("three hosts")

    async def run(self) -> Findings:
        """Do it all."""
        workers = await self._start()
        async with Producer.connect(self._on.redis_url, self._on.stream) as producer:
            announcing = asyncio.create_task(self._announcer.run(producer))
            self._announcer.rate = self._options.per_hour / 3600
            await asyncio.sleep(_STEADY_SECONDS)
            await self._lose_a_host(producer)
            await self._come_back()
            self._announcer.rate = 0.0
            await asyncio.sleep(1)
            announcing.cancel()
        self.findings.require(await drained(self._on), "the queue does not become empty")
        await self.findings.look(self._on, self._announcer.accepted)
        for worker in workers:
            self.findings.require(not worker.process.has_ended(), f"{worker.process.name} has ended")
        return self.findings

    async def _start(self) -> list[Worker]:
        watchers = [Watcher(self._on, self._net.name(host)) for host in self._net.hosts]
        workers = [
            Worker(self._on, self._net.name(host), self._net.on(host), self._options.processes)
            for host in self._net.hosts
        ]
        expected = self._options.processes

        async def all_alive() -> bool:
            return all(watcher.alive() == expected for watcher in watchers)

        self.findings.require(await happens(all_alive, _SECONDS_TO_START), "not all processes have started")
        say(f"{len(workers)} hosts with {expected} processes each work")
        return workers

    async def _lose_a_host(self, producer: Producer) -> None:
        """Announce the burst, take the link down, and see when the orders of the host are stored."""
        await self._announcer.announce(producer, self._options.burst)
        await asyncio.sleep(0.5)
        self._net.set_link(_HOST, "down")
        down = time.monotonic()
        held = self._watcher.held()
        say(
            f"{self._net.name(_HOST)} is cut off with {len(held)} orders, of which {self._watcher.stored(held)} are stored"
        )

        async def all_stored() -> bool:
            return self._watcher.stored(held) == len(held)

        found = await happens(all_stored, self._options.outage)
        took = time.monotonic() - down
        say(f"its orders are stored after {took:.1f} s" if found else "its orders are not stored")
        self.findings.figures |= {
            "orders that the host held when it was cut off": len(held),
            "seconds until they were stored elsewhere": round(took, 1),
        }
        self.findings.require(bool(held), "the host held nothing when it was cut off: this run shows nothing")
        self.findings.require(found and took <= _STORED_WITHIN, f"its orders were stored after {took:.1f} s")
        await asyncio.sleep(max(0.0, down + self._options.outage - time.monotonic()))
        self.findings.figures["processes of it with a heartbeat at the end of the outage"] = self._watcher.alive()

    async def _come_back(self) -> None:
        """Take the link up, and see when the host works again."""
        self._net.set_link(_HOST, "up")
        up = time.monotonic()

        async def all_back() -> bool:
            return self._watcher.alive() == self._options.processes

        found = await happens(all_back, _SECONDS_TO_RETURN)
        took = round(time.monotonic() - up, 1)
        say(f"the host is back after {took} s" if found else "the host does not come back")
        self.findings.figures["seconds until all its processes were back"] = took
        self.findings.require(found, f"after {took} s, {self._watcher.alive()} of its processes are back")
        await asyncio.sleep(_STEADY_SECONDS)


def reachable(on: Stage) -> None:
    """Let both servers listen to the hosts as well. Their passwords are random."""
    on.redis.config_set("bind", f"127.0.0.1 {HERE}")
    ((file,),) = on.sql("SHOW hba_file")
    with Path(file).open("a") as lines:
        lines.write(f"host all all {HERE}/24 scram-sha-256\n")
    on.sql("SELECT pg_reload_conf()")
    on.commands.configure(
        {
            "INGEST_REDIS_URL": on.redis_url.replace("127.0.0.1", HERE),
            "INGEST_POSTGRES_DSN": on.postgres_dsn.replace("127.0.0.1", HERE),
        }
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=15, help="of each host")
    parser.add_argument("--concurrency", type=int, default=10, help="orders in flight in each process")
    parser.add_argument("--per-hour", type=float, default=50_000.0, help="orders announced steadily")
    parser.add_argument("--burst", type=int, default=5000, help="orders announced at once")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without the link")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    require_root()
    with orderly_exit() as stack:
        net = stack.enter_context(network(3))
        on = stack.enter_context(stage(postgres_settings={"listen_addresses": f"127.0.0.1,{HERE}"}))
        on.migrate()
        reachable(on)
        api = on.api("--host", HERE, "--latency", "0.2-0.4")
        on.commands.configure({"INGEST_UPSTREAM_URL": api.url, "INGEST_CONCURRENCY": str(options.concurrency)})
        return uvloop.run(Rehearsal(on, net, options).run()).conclude(options.json)


if __name__ == "__main__":
    sys.exit(main())
