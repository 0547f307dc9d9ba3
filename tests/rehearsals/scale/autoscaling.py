"""Rehearses autoscaling with a load from zero to `--rate` and back, and the workers that our ScaledObject would have.

Run it with `make rehearse-autoscaling`. A real Prometheus scrapes the workers and `ingest exporter`, and evaluates the
ScaledObject's own query. Each worker runs in control groups with the limits of the Deployment. During the load, half of
the workers are killed repeatedly. `--speed 4` divides all times of the manifest, the scrapes and the load by four.
"""

import argparse
import asyncio
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
import uvloop
from rehearsals.scale.autoscaling_chart import Sample, draw_samples
from rehearsals.scale.control_groups import ControlGroups, control_groups
from rehearsals.scale.fleet_of_containers import Fleet
from rehearsals.scale.manifest import limits_of_worker, rules, settings_of_all
from rehearsals.scale.prometheus import Prometheus
from rehearsals.scale.rehearsal import Announcer, Findings, happens, say
from rehearsals.scale.scaler import SYNC_PERIOD, Scaler, reversals

from ingest.bench.stage import Stage, stage
from ingest.lab.session import orderly_exit
from ingest.queue.produce.producer import Producer

# Of a run at normal speed, in seconds.
_QUIET, _LOAD, _SCRAPE = 20.0, 300.0, 10.0
_KILLS = 3
_MOST_REVERSALS = 3  # up, to none, up for one order, to none


class Rehearsal:
    """One run. `_now`, like all times of the scaler and the chart, is in seconds of a run at normal speed."""

    def __init__(
        self, on: Stage, fleet: Fleet, prometheus: Prometheus, scaler: Scaler, options: argparse.Namespace
    ) -> None:
        self._on = on
        self._fleet = fleet
        self._prometheus = prometheus
        self._scaler = scaler
        self._options = options
        self._random = random.Random(options.seed)
        self._began = time.monotonic()
        self._announcer = Announcer()
        self._samples: list[Sample] = []
        self.findings = Findings("autoscaling")

    async def run(self) -> Findings:
        """Idle, load with kills, idle until all workers have ended, one order, idle again, and the reconciliation."""
        self._began = time.monotonic()
        background = [asyncio.create_task(part) for part in (self._poll(), self._sync(), self._sample())]
        async with Producer.connect(self._on.redis_url, self._on.stream) as producer:
            background.append(asyncio.create_task(self._announcer.run(producer)))
            await self._sleep(_QUIET)
            await self._load()
            await self._becomes_none("after the load")
            await self._one_order(producer)
            await self._becomes_none("after one order")
        for task in background:
            task.cancel()
        await asyncio.wait(background)
        await self._fleet.has_stopped()
        for task in background:
            with suppress(asyncio.CancelledError):
                await task
        self._judge()
        await self.findings.look(self._on, self._announcer.accepted)
        if self._options.chart:
            draw_samples(self._samples, self._options.chart, self._title())
        return self.findings

    async def _load(self) -> None:
        self._announcer.rate = self._options.rate
        say(f"{self._options.rate:.0f} orders/s")
        moments = sorted(self._random.uniform(0.2, 0.9) * _LOAD for _ in range(_KILLS))
        began, killed = self._now(), 0
        for moment in moments:
            await self._sleep(began + moment - self._now())
            killed += self._fleet.kill_half(self._random)
        await self._sleep(began + _LOAD - self._now())
        self.findings.figures |= {
            "orders a second": round(len(self._announcer.accepted) / (self._now() - began) * self._options.speed),
            "all times divided by": self._options.speed,
            "workers killed": killed,
            "backlog at the end of the load": sum(self._on.queued()),
        }
        self._announcer.rate = 0.0
        say(f"no more orders; {killed} workers were killed, {self._scaler.replicas} run")

    async def _becomes_none(self, when: str) -> None:
        began, allowed = self._now(), 2 * self._scaler.rules.cooldown + 120

        async def is_none() -> bool:
            return self._scaler.replicas == 0

        found = await happens(is_none, allowed / self._options.speed)
        self.findings.require(found, f"{when}, {self._scaler.replicas} workers still run")
        self.findings.figures[f"seconds to no worker {when}"] = round(self._now() - began)
        # The next order must not be taken by a worker that is about to end.
        await self._fleet.has_stopped()
        self.findings.require(self._on.queued() == (0, 0), f"{when}, the last worker was stopped while there was work")

    async def _one_order(self, producer: Producer) -> None:
        await self._announcer.announce(producer, 1)
        began = self._now()

        async def is_stored() -> bool:
            return self._on.queued() == (0, 0)

        found = await happens(is_stored, 120)
        self.findings.require(found, "one order does not start a worker")
        self.findings.figures["seconds from one order to its row, from no worker"] = round(self._now() - began)
        say("one order has started a worker")

    async def _poll(self) -> None:
        async for now, work in self._asked(self._scaler.rules.polling):
            self._scaler.poll(now, work)
            self._fleet.become(self._scaler.replicas)

    async def _sync(self) -> None:
        async for now, work in self._asked(SYNC_PERIOD):
            self._scaler.sync(now, work)
            self._fleet.become(self._scaler.replicas)

    async def _asked(self, every: float):  # noqa: ANN202  an async generator of moments and answers
        async with aiohttp.ClientSession() as session:
            while True:
                # No answer is a fault, and changes nothing: `ignoreNullValues: "false"`.
                if (work := await self._prometheus.ask(session, self._scaler.rules.query)) is not None:
                    yield self._now(), work
                await self._sleep(every)

    async def _sample(self) -> None:
        while True:
            backlog = sum(self._on.queued())
            self._samples.append(Sample(self._now(), self._announcer.rate, backlog, self._fleet.running()))
            await asyncio.sleep(0.5)

    def _judge(self) -> None:
        """Bounded, steady, and no attempt used up."""
        changes = [change for _, change in self._scaler.history]
        most = self._scaler.rules.most
        left = self.findings.figures["backlog at the end of the load"]
        self.findings.figures |= {
            "most workers": max(sample.workers for sample in self._samples),
            "largest backlog": max(sample.backlog for sample in self._samples),
            "changes of the number of workers": len(changes),
            "from growing to shrinking, or back": reversals(changes),
        }
        self.findings.require(left <= 1.5 * most * self._scaler.rules.threshold, f"the backlog is not bounded: {left}")
        self.findings.require(reversals(changes) <= _MOST_REVERSALS, f"the number of workers swings: {changes}")

    def _title(self) -> str:
        killed = self.findings.figures["workers killed"]
        speed = "" if self._options.speed == 1 else f"; {self._options.speed:g} times as fast"
        return f"{self._options.rate:,.0f} orders/s for {_LOAD:.0f} s, then one order; {killed} workers killed{speed}"

    def _now(self) -> float:
        return (time.monotonic() - self._began) * self._options.speed

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds / self._options.speed))


@contextmanager
def prepared(on: Stage, groups: ControlGroups, options: argparse.Namespace, most: int) -> Iterator[Rehearsal]:
    """All parts, started."""
    on.migrate()
    api = on.api("--latency", "0.1-0.3")
    settings = settings_of_all() | {"INGEST_UPSTREAM_URL": api.url}
    if options.concurrency:
        settings["INGEST_CONCURRENCY"] = str(options.concurrency)
    on.commands.configure(settings)
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("this rehearsal needs Prometheus: apt-get install prometheus")
    prometheus = Prometheus(on, Path(program), _SCRAPE / options.speed)
    fleet = Fleet(on, groups, limits_of_worker(), prometheus)
    scaler = Scaler(rules(most))
    yield Rehearsal(on, fleet, prometheus, scaler, options)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=400.0, help="orders a second")
    parser.add_argument("--speed", type=float, default=1.0, help="divides all times")
    parser.add_argument(
        "--concurrency", type=int, help="orders in flight in each worker, if not what the manifest says"
    )
    parser.add_argument("--most", type=int, default=0, help="most workers, if not what the manifest says")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the workers that are killed")
    parser.add_argument("--chart", type=Path, help="draw PATH.svg and PATH.png")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with orderly_exit() as stack:
        groups = stack.enter_context(control_groups())
        on = stack.enter_context(stage())
        rehearsal = stack.enter_context(prepared(on, groups, options, options.most))
        return uvloop.run(rehearsal.run()).conclude(options.json)


if __name__ == "__main__":
    sys.exit(main())
