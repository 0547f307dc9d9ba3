"""Rehearses a pause of one source of three, while 20 worker processes on three hosts fetch orders of all of them.

Run it with `make rehearse-pause`. The hosts are network namespaces. Each source has its own external API, which records when the last
request began. All times are of one machine, so that they can be compared.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop
from rehearsals.scale.control_groups import require_root
from rehearsals.scale.hosts import HERE, Network, network
from rehearsals.scale.rehearsal import Findings, Worker, happens, say
from rehearsals.scale.three_hosts import reachable

from ingest.bench.stage import Stage, stage
from ingest.lab.session import orderly_exit
from ingest.lab.simulated_api import RunningApi
from ingest.queue.produce.producer import Producer

_SOURCES = ("shop-a", "shop-b", "shop-c")
_PAUSED = "shop-b"
_PAUSED_WITHIN, _RESUMED_WITHIN, _SHARE = 2.0, 5.0, 0.9
_STEADY_SECONDS, _PAUSE_SECONDS, _WATCHED_SECONDS = 15.0, 20.0, 15.0
_SECONDS_TO_START, _SECONDS_TO_DRAIN = 120.0, 300.0
_WINDOW, _STEP = 2.0, 0.25


@dataclass(frozen=True, slots=True)
class Sample:
    """The requests that each API has received until a time (Unix seconds)."""

    at: float
    requests: Mapping[str, int]


class Rehearsal:
    """Steady load, pause, resumption, drained queues, and the check of all orders."""

    def __init__(self, on: Stage, net: Network, apis: Mapping[str, RunningApi], options: argparse.Namespace) -> None:
        self._on = on
        self._net = net
        self._apis = apis
        self._options = options
        self._ids = [f"PAUSE-{number}" for number in range(options.orders)]
        self.findings = Findings("pause of one source of three")

    async def run(self) -> Findings:
        """Do it all."""
        for source in _SOURCES:
            async with Producer.connect(self._on.redis_url, self._on.stream, source=source) as producer:
                await producer.enqueue(self._ids)
        workers = [
            Worker(self._on, self._net.name(host), self._net.on(host), processes)
            for host, processes in zip(self._net.hosts, self._options.processes, strict=True)
        ]

        async def all_work() -> bool:
            found = self._on.redis.zcard(f"ingest:{{{self._on.stream}/{_PAUSED}}}:alive:ingest")
            return found == sum(self._options.processes)

        self.findings.require(await happens(all_work, _SECONDS_TO_START), "not all processes have started")
        before = await self._rates(_STEADY_SECONDS)
        say(f"{sum(self._options.processes)} processes on {len(workers)} hosts work: {_shown(before)}")
        await self._pause(before)
        await self._resume(before)
        await self._finish()
        for worker in workers:
            self.findings.require(not worker.process.has_ended(), f"{worker.process.name} has ended")
        return self.findings

    async def _pause(self, before: Mapping[str, float]) -> None:
        began = time.time()
        self._on.commands.start("pause", "--source", _PAUSED, "--reason", "rehearsal").finish()
        ended = time.time()
        await asyncio.sleep(2 * _PAUSED_WITHIN)
        sent = self._apis[_PAUSED].stats().requests
        during = await self._rates(_PAUSE_SECONDS)
        stats = self._apis[_PAUSED].stats()
        last = stats.last_request.unix if stats.last_request is not None else began
        say(f"paused: the last request began {last - ended:.2f} s after the command: {_shown(during)}")
        slowest = min(during[source] / before[source] for source in _SOURCES if source != _PAUSED)
        self.findings.figures |= {
            "seconds of the command that pauses": round(ended - began, 2),
            "seconds from its start to the last request": round(last - began, 2),
            "seconds from its end to the last request": round(last - ended, 2),
            "rate of the slower other source meanwhile": f"{slowest:.0%}",
        }
        self.findings.require(last <= ended + _PAUSED_WITHIN, f"a request began {last - ended:.2f} s after the pause")
        self.findings.require(stats.requests == sent, f"{stats.requests - sent} requests began while it was paused")
        self.findings.require(slowest >= _SHARE, f"another source had {slowest:.0%} of its rate")

    async def _resume(self, before: Mapping[str, float]) -> None:
        self._on.commands.start("resume", "--source", _PAUSED).finish()
        resumed = time.time()
        samples = await self._samples(_WATCHED_SECONDS)
        reached = next(
            (
                later.at
                for earlier, later in _windows(samples)
                if _rate(earlier, later)[_PAUSED] >= _SHARE * before[_PAUSED]
            ),
            None,
        )
        took = None if reached is None else round(reached - resumed, 2)
        say(f"resumed: {_SHARE:.0%} of the rate over {_WINDOW:g} s after {took} s")
        self.findings.figures[f"seconds until {_SHARE:.0%} of the rate"] = took
        self.findings.require(took is not None and took <= _RESUMED_WITHIN, f"resumed after {took} s")

    async def _finish(self) -> None:
        async def all_stored() -> bool:
            return self._on.sql("SELECT count(*) FROM orders")[0][0] == len(_SOURCES) * len(self._ids)

        self.findings.require(await happens(all_stored, _SECONDS_TO_DRAIN, 1.0), "not all orders are stored")
        [(stored, most)] = self._on.sql("SELECT count(*), max(attempts) FROM orders")
        logs = [log.read_text(errors="replace") for log in self._on.home.glob("*.log")]
        retries = sum(log.count("retry_scheduled") for log in logs)
        requests = {source: api.stats().requests for source, api in self._apis.items()}
        self.findings.figures |= {
            "orders": len(_SOURCES) * len(self._ids),
            "stored": stored,
            "most attempts of an order": most,
            "retries": retries,
            "requests": sum(requests.values()),
        }
        self.findings.require(most == 1, f"an order has {most} attempts")
        self.findings.require(not retries, f"{retries} retries were scheduled")
        self.findings.require(not any("dead_lettered" in log for log in logs), "orders were dead-lettered")

    async def _rates(self, seconds: float) -> Mapping[str, float]:
        first = await self._sample()
        await asyncio.sleep(seconds)
        return _rate(first, await self._sample())

    async def _samples(self, seconds: float) -> list[Sample]:
        samples, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            samples.append(await self._sample())
            await asyncio.sleep(_STEP)
        return samples

    async def _sample(self) -> Sample:
        requests = {source: await asyncio.to_thread(_requests_of(api)) for source, api in self._apis.items()}
        return Sample(time.time(), requests)


def _requests_of(api: RunningApi) -> Callable[[], int]:
    return lambda: api.stats().requests


def _windows(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    return [
        (earlier, later)
        for earlier in samples
        if (later := next((each for each in samples if each.at >= earlier.at + _WINDOW), None)) is not None
    ]


def _rate(earlier: Sample, later: Sample) -> Mapping[str, float]:
    seconds = later.at - earlier.at
    return {source: (later.requests[source] - earlier.requests[source]) / seconds for source in later.requests}


def _shown(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{source} {rate:.0f}/s" for source, rate in rates.items())


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs=3, default=[7, 7, 6], help="of each host")
    parser.add_argument("--rate", type=float, default=60.0, help="requests per second of each source")
    parser.add_argument("--orders", type=int, default=6000, help="of each source")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    require_root()
    with orderly_exit() as stack:
        net = stack.enter_context(network(3))
        on = stack.enter_context(stage(postgres_settings={"listen_addresses": f"127.0.0.1,{HERE}"}))
        on.migrate()
        reachable(on)
        apis = {source: on.api("--host", HERE, "--latency", "0.1-0.3") for source in _SOURCES}
        file = on.home / "sources.toml"
        file.write_text(
            "\n".join(
                f'[sources.{source}.upstream]\nurl = "{api.url}"\nrate = {options.rate:g}\n'
                for source, api in apis.items()
            )
        )
        on.commands.configure({"INGEST_SOURCES": str(file), "INGEST_CONCURRENCY": "30", "INGEST_LOG_FORMAT": "json"})
        return uvloop.run(Rehearsal(on, net, apis, options).run()).conclude(options.json)


if __name__ == "__main__":
    sys.exit(main())
