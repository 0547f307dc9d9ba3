"""A real Prometheus and a real Alertmanager, and the receiver of their notifications."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from rehearsals.alerting import configuration
from rehearsals.alerting.deployments import Deployment
from support import eventually

from ingest.bench.stage import Stage
from ingest.lab.http_api import wait_until_served
from ingest.lab.servers.server import free_port

_PROGRAMS = ("prometheus", "prometheus-alertmanager")
_MISSING = "this needs Prometheus and Alertmanager: apt-get install prometheus prometheus-alertmanager"
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Notification:
    """One alert in a message of Alertmanager."""

    labels: Labels
    is_firing: bool
    annotations: Labels
    at: float


@dataclass(slots=True)
class Receiver:
    """Receives the messages of Alertmanager as a webhook."""

    notifications: list[Notification] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        message: Any = await request.json()
        self.notifications += [
            Notification(alert["labels"], alert["status"] == "firing", alert["annotations"], time.monotonic())
            for alert in message["alerts"]
        ]
        return web.Response()

    def latest(self, labels: Labels, since: float) -> Notification | None:
        """The latest notification of an alert with these labels."""
        found = [one for one in self.notifications if one.at >= since and labels.items() <= one.labels.items()]
        return found[-1] if found else None


class Monitoring:
    """Both programs, which run with the committed configuration, `speed` times as fast.

    Attributes:
        receiver: the receiver of notifications.
    """

    def __init__(
        self, targets: Path, name_of_target: str, url: str, receiver: Receiver, http: aiohttp.ClientSession
    ) -> None:
        self._targets = targets
        self._name_of_target = name_of_target
        self._url = url
        self._http = http
        self.receiver = receiver

    @classmethod
    @asynccontextmanager
    async def open(cls, on: Stage, deployment: Deployment, speed: float) -> AsyncIterator["Monitoring"]:
        """Start both. They end with the stage."""
        programs = [shutil.which(name) for name in _PROGRAMS]
        if None in programs:
            raise SystemExit(_MISSING)
        prometheus, alertmanager = (Path(str(program)) for program in programs)
        home = on.home / "monitoring"
        home.mkdir()
        receiver, ports = Receiver(), (free_port(), free_port())
        application = web.Application()
        application.router.add_post("/", receiver.receive)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", free_port())
        await site.start()
        written = {
            "rules.yml": configuration.rules(deployment, speed),
            "prometheus.yml": configuration.prometheus(deployment, speed, home / "rules.yml", home, ports),
            "alertmanager.yml": configuration.alertmanager(speed, site.name),
        }
        for name, content in written.items():
            (home / name).write_text(yaml.safe_dump(content))
        for job in ("ingest", "ingest-api"):
            _write(home / f"{job}.json", {}, deployment.name_of_target)
        processes = [
            on.executable(
                prometheus, f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address=127.0.0.1:{ports[0]}", f"--query.lookback-delta={round(300_000 / speed)}ms",
            ),
            on.executable(
                alertmanager, f"--config.file={home / 'alertmanager.yml'}", f"--storage.path={home / 'alerts'}",
                f"--web.listen-address=127.0.0.1:{ports[1]}", "--cluster.listen-address=",
            ),
        ]  # fmt: skip
        for process, port in zip(processes, ports, strict=True):
            await asyncio.to_thread(wait_until_served, [process], port)
        try:
            async with aiohttp.ClientSession() as http:
                yield cls(home, deployment.name_of_target, f"http://127.0.0.1:{ports[0]}/api/v1/alerts", receiver, http)
        finally:
            await runner.cleanup()

    def scrape(self, job: str, ports: Mapping[str, int]) -> None:
        """Scrape these ports of this machine for a job, by the name of the process."""
        _write(self._targets / f"{job}.json", ports, self._name_of_target)

    async def active(self) -> list[tuple[Labels, str]]:
        """The labels and the state of each alert in Prometheus: pending or firing."""
        async with self._http.get(self._url) as response:
            answer: Any = await response.json()
        return [(alert["labels"], alert["state"]) for alert in answer["data"]["alerts"]]

    async def fires(self, labels: Labels, since: float, within: float) -> Notification:
        """Wait for a notification that the alert fires."""

        async def told() -> Notification | None:
            found = self.receiver.latest(labels, since)
            return found if found is not None and found.is_firing else None

        found = await eventually(told, within=within, every=0.1)
        assert found is not None
        return found

    async def ends(self, labels: Labels, since: float, within: float) -> None:
        """Wait until Prometheus no longer lists the alert, and a notification reports it as resolved."""

        async def is_over() -> bool:
            found = self.receiver.latest(labels, since)
            is_active = any(labels.items() <= alert.items() for alert, _ in await self.active())
            return found is not None and not found.is_firing and not is_active

        await eventually(is_over, within=within, every=0.2)


def _write(file: Path, ports: Mapping[str, int], name_of_target: str) -> None:
    targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {name_of_target: name}} for name, port in ports.items()]
    new = file.with_suffix(".new")
    new.write_text(json.dumps(targets))
    new.replace(file)
