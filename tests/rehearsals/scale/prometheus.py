"""A Prometheus for the rehearsal, which scrapes the given targets and evaluates one query."""

import json
from pathlib import Path
from typing import Any

import aiohttp

from ingest.bench.stage import Stage
from ingest.lab.http_api import wait_until_served
from ingest.lab.servers.server import free_port

_CONFIGURATION = """\
global: {{scrape_interval: {every:.0f}ms, scrape_timeout: {every:.0f}ms}}
scrape_configs:
  - job_name: ingest
    file_sd_configs: [{{files: [{targets}], refresh_interval: 5s}}]
"""


class Prometheus:
    """Reads its targets from a file, which it watches like pods in Kubernetes.

    Args:
        on: starts and ends it.
        program: its executable file.
        every: seconds between scrapes.
    """

    def __init__(self, on: Stage, program: Path, every: float) -> None:
        home = on.home / "prometheus"
        home.mkdir()
        self._targets = home / "targets.json"
        self.tell({})
        configuration = home / "prometheus.yml"
        configuration.write_text(_CONFIGURATION.format(every=1000 * every, targets=json.dumps(str(self._targets))))
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/api/v1/query"
        process = on.executable(
            program,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        wait_until_served([process], port)

    def tell(self, ports: dict[str, int]) -> None:
        """Tell it all targets, by their names."""
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}} for name, port in sorted(ports.items())
        ]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(targets))
        new.rename(self._targets)

    async def ask(self, session: aiohttp.ClientSession, query: str) -> float | None:
        """The current value of the query, or None."""
        async with session.get(self._url, params={"query": query}) as response:
            answer: Any = await response.json()
        result = answer["data"]["result"]
        return float(result[0]["value"][1]) if result else None
