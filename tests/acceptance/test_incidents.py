"""Every view names the cause of an incident, the source or the server, and since when it lasts."""

import asyncio
import json
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest
from acceptance.commands import Workers, closing_workers
from acceptance.incidents import INCIDENTS, SHOP, Incident, Stage
from support import DEADLINE, Cli, closing_cli, eventually

from ingest.lab.servers import EmbeddedServers
from ingest.lab.servers.server import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
# An operator who looks should see it within 15 seconds. A loaded machine gets more time.
WITHIN = float(os.environ.get("INGEST_TEST_INCIDENT_SECONDS", DEADLINE))
SINCE = r"(for \d|for another|\bsince\b)"


@pytest.fixture
def cli(env: dict[str, str]) -> Iterator[Cli]:
    with closing_cli(env) as cli:
        yield cli


@pytest.fixture
def workers(cli: Cli) -> Iterator[Workers]:
    with closing_workers(cli, {}) as workers:
        yield workers


class Views:
    """The seven places where an operator looks."""

    def __init__(self, stage: Stage, incident: Incident, ports: tuple[int, int]) -> None:
        self._stage = stage
        self._incident = incident
        self._console, self._metrics = ports

    def all(self) -> dict[str, Callable[[], Awaitable[bool]]]:
        return {
            "status": lambda: self._command("status"),
            "top": lambda: self._command("top", "--once"),
            "source list": lambda: self._command("source", "list"),
            "doctor": lambda: self._command("doctor"),
            "console": self._in_console,
            "/metrics": self._in_metrics,
            "log": self._in_log,
        }

    def _is_named(self, text: str) -> bool:
        """Whether one line, or two that belong together, contain everything."""
        line = " ".join(text.split())
        place, cause = re.escape(self._incident.place), self._incident.text
        return any(
            re.search(place, near, re.IGNORECASE) and re.search(SINCE, near)
            for found in re.finditer(cause, line, re.IGNORECASE)
            for near in [line[max(0, found.start() - 250) : found.end() + 250]]
        )

    async def _command(self, *arguments: str) -> bool:
        return self._is_named(await self._stage.run(*arguments))

    async def _in_console(self) -> bool:
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self._console}/console/") as response:
            return self._is_named(unescape(re.sub(r"<[^>]*>", " ", await response.text())))

    async def _in_metrics(self) -> bool:
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self._metrics}/metrics") as response:
            text = await response.text()
        server = "" if self._incident.place == SHOP else self._incident.place
        wanted = (
            "ingest_source_state_since_seconds{",
            f'source="{SHOP}"',
            f'state="{self._incident.state or "running"}"',
            f'server="{server}',
        )
        return any(all(part in line for part in wanted) and float(line.split()[-1]) > 1e9 for line in text.splitlines())

    async def _in_log(self) -> bool:
        assert self._stage.command is not None
        log = [json.dumps(event) for event in self._stage.command.log]
        parts = self._incident.log.split(".*")
        return any(all(re.search(part, line) for part in parts) for line in log)


# Another incident is told apart by the same text of the same server or file.
REPEATED = ("lock on the history", "429 with Retry-After", "secret missing")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in REPEATED else []) for name in INCIDENTS]
)
async def test_every_view_names_the_cause_the_place_and_since_when(
    name: str, own_servers: EmbeddedServers, cli: Cli, workers: Workers, queue_name: str
) -> None:
    incident, red = INCIDENTS[name], []
    async with AsyncExitStack() as stack:
        # Short, because views shorten long paths.
        folder = Path(stack.enter_context(TemporaryDirectory()))
        stage = await stack.enter_async_context(Stage.open(own_servers, cli, workers, queue_name, folder))
        if "node" in name:
            await stage.use_cluster(stack)
        if "history" in name:
            stage.environment["INGEST_HISTORY"] = "1d"
        ports = free_port(), free_port()
        cli.start("api", "--port", str(ports[0]), env={**stage.environment, "INGEST_API_METRICS_PORT": "0"})
        cli.start("exporter", "--metrics-port", str(ports[1]), env=stage.environment)
        for port in ports:
            await eventually(partial(_is_served, port))
        await stage.start_worker()
        async with incident.cause(stage):

            async def check(view: str, is_named: Callable[[], Awaitable[bool]]) -> None:
                try:
                    await eventually(is_named, within=WITHIN, every=0.5)
                except AssertionError:
                    red.append(view)

            views = Views(stage, incident, ports).all()
            await asyncio.gather(*(check(view, is_named) for view, is_named in views.items()))
            if incident.state not in ("", "paused", "throttled"):
                red += [] if (await stage.exit_code("status")) else ["exit code"]

            shown = await stage.run("status") if red else ""

    assert not red, f"{name}: {', '.join(red)}\n{shown}"


def _is_served(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
