"""Causes each alert, and ends its cause, against a real Prometheus and a real Alertmanager with the rules of a deployment.

Run it with `make alerts ARGS="--deployment kubernetes"`. The processes, the rules and the scrape configuration are those that the
deployment contains or documents. An alert has passed if Alertmanager has sent its notification while the cause held, and another
one that it is resolved after the cause has ended. `--speed` divides all durations of the rules and of both programs.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Collection, Coroutine
from pathlib import Path

import uvloop
from rehearsals.alerting.deployments import DEPLOYMENTS
from rehearsals.alerting.monitoring import Monitoring
from rehearsals.alerting.scenarios import ALONE, OF_SOURCES, Caused, Scenario, labels_of
from rehearsals.alerting.system import System
from rehearsals.scale.rehearsal import Findings, say, table

from ingest.bench.stage import Stage, stage
from ingest.lab.session import orderly_exit

# Of the rules, at normal speed: the longest alert fires after an hour, and another one ends an hour after its cause.
_FIRES, _ENDS = 5400.0, 5400.0
# The longest `offset` of a rule.
_HISTORY = 960.0
# For processes that start, retries that wait, and a loaded machine.
_SLACK = 180.0


class Rehearsal:
    """All scenarios, one after another or concurrently.

    Attributes:
        rows: name, severity and source of each alert, with the seconds until it fired, and until it ended.
    """

    def __init__(self, system: System, monitoring: Monitoring, speed: float) -> None:
        self.rows: dict[Caused, list[str]] = {}
        self.faults: list[str] = []
        self._system = system
        self._monitoring = monitoring
        self._speed = speed

    async def run(self, only: Collection[str]) -> None:
        """Run the scenarios of sources concurrently, then the others."""
        chosen = [scenario for scenario in OF_SOURCES if _is_chosen(scenario, only)]
        await asyncio.gather(*map(self._try, chosen))
        for scenario in ALONE:
            if _is_chosen(scenario, only):
                await self._try(scenario)

    async def _try(self, scenario: Scenario) -> None:
        say(f"{scenario.name} begins")
        began = time.monotonic()
        async with scenario.cause(self._system, self._speed):
            # A cause ends, whether its alerts have fired or not.
            await asyncio.gather(*(self._expect(self._fires(caused, began), caused) for caused in scenario.alerts))
            ended = time.monotonic()
        for caused in scenario.alerts:
            if caused in self.rows:
                await self._expect(self._ends(caused, began, ended), caused)

    async def _expect(self, what: Coroutine[None, None, None], caused: Caused) -> None:
        try:
            await what
        except AssertionError as error:
            self.faults.append(f"{caused[0]} ({caused[1]}): {error}")
            say(f"{caused[0]} FAILED: {error}; active: {await self._monitoring.active()}")

    async def _ends(self, caused: Caused, began: float, ended: float) -> None:
        await self._monitoring.ends(labels_of(caused), began, _ENDS / self._speed + _SLACK)
        self.rows[caused].append(f"{time.monotonic() - ended:.0f}")
        say(f"{caused[0]} ({caused[1]}) is resolved")

    async def _fires(self, caused: Caused, began: float) -> None:
        fired = await self._monitoring.fires(labels_of(caused), began, _FIRES / self._speed + _SLACK)
        say(f"{caused[0]} ({caused[1]}) fires: {fired.annotations['summary']}")
        if not fired.annotations["runbook_url"].startswith("https://"):
            self.faults.append(f"{caused[0]}: its runbook_url is not absolute")
        self.rows[caused] = [*caused, f"{fired.at - began:.0f}"]


def _is_chosen(scenario: Scenario, only: Collection[str]) -> bool:
    names = {scenario.name, *(name for name, _, _ in scenario.alerts)}
    return not only or not names.isdisjoint(only)


async def run(on: Stage, options: argparse.Namespace) -> int:
    """Run everything on this stage, print the times, and return the exit code."""
    findings, deployment = Findings(f"alerts of {options.deployment}"), DEPLOYMENTS[options.deployment]
    async with (
        Monitoring.open(on, deployment, options.speed) as monitoring,
        System.open(on, deployment, monitoring) as system,
    ):
        rehearsal = Rehearsal(system, monitoring, options.speed)
        began = time.monotonic()
        say("waiting for the history that the rules compare with")
        await asyncio.sleep(_HISTORY / options.speed)
        await rehearsal.run(options.only or ())
        findings.faults += rehearsal.faults
        findings.figures |= {
            "all times divided by": options.speed,
            "alerts that fired and ended": sum(len(row) == 5 for row in rehearsal.rows.values()),
            "notifications": len(monitoring.receiver.notifications),
            "minutes": round((time.monotonic() - began) / 60, 1),
        }
    heads = ["alert", "severity", "source", "seconds to its notification", "seconds to its end"]
    print(table(heads, list(rehearsal.rows.values())))  # noqa: T201  what it is for
    if options.times:
        options.times.write_text(json.dumps(list(rehearsal.rows.values())))
    return findings.conclude(options.json)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", type=float, default=20.0, help="divides all times")
    parser.add_argument(
        "--deployment", choices=DEPLOYMENTS, default="compose", help="whose processes and rules (compose)"
    )
    parser.add_argument("--only", action="append", help="the name of an alert or of a cause; may be repeated")
    parser.add_argument("--times", type=Path, help="file for the times of each alert")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with orderly_exit() as stack:
        on = stack.enter_context(stage())
        on.migrate()
        return uvloop.run(run(on, options))


if __name__ == "__main__":
    sys.exit(main())
