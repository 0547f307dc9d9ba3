"""The imports of the processes of `ingest worker`, because each module costs start-up time and memory."""

import subprocess
import sys

import pytest

# By name, why a worker that uses none of it does without.
UNNEEDED = {
    "pydantic": "only reads and validates settings",
    "pydantic_settings": "as above",
    "dotenv": "as above",
    "typer": "only parses the command line, and imports Pydantic",
    "prometheus_client": "only the process that serves /metrics",
    "aiohttp": "only if it is the HTTP client in use, or for a proxy",
    "jmespath": "only mappings with expressions",
    "http.server": "serves nothing",
    "urllib.request": "only for a proxy, and imports http.client",
    "ingest.cli": "the command line",
    "ingest.upstream.lists.order_list": "only with a list of orders",
    "ingest.operations.backfill": "as above",
    "ingest.mapping.compiled.mapping": "only with a mapping",
    "ingest.settings.loading": "reads the settings",
    "rich": "only prints for people",
    "tomllib": "only reads files",
    "psutil": "an extra",
    "ingest.telemetry.tracing.otel": "only with traces",
    "google.protobuf": "as above",
}
# Where OpenTelemetry is installed, redis-py imports a part of it, and with it psutil.
WITHOUT_OPENTELEMETRY = "sys.modules['opentelemetry'] = None"
WORKER = f"{WITHOUT_OPENTELEMETRY}\nimport ingest.worker_command, ingest.services.worker, ingest.telemetry.logs, ingest.upstream.http.native"
METRICS = f"{WORKER}, ingest.probes.metrics_page"


def test_a_worker_imports_only_what_it_needs() -> None:
    imported = modules_after(WORKER)

    assert {name: UNNEEDED[name] for name in UNNEEDED if name in imported} == {}


def test_a_command_handles_ctrl_c_before_it_imports_what_takes_long() -> None:
    imported = modules_after("import ingest.__main__")

    assert imported & {"asyncio", "pydantic", "ssl", "typer"} == set()


def test_the_process_of_metrics_imports_no_server_library() -> None:
    imported = modules_after(METRICS)

    assert imported.isdisjoint({"aiohttp", "pydantic", "typer", "ingest.cli"})


@pytest.mark.parametrize("name", ["ingest", "ingest.settings"])
def test_a_package_imports_its_parts_when_they_are_asked_for(name: str) -> None:
    imported = modules_after(f"import {name}")

    assert imported.isdisjoint({"pydantic", "redis", "asyncpg", "aiohttp"})


def modules_after(code: str) -> set[str]:
    """The modules that this code imports. Coverage may have imported some before, such as tomllib."""
    return printed_after(f"import sys\nbefore = set(sys.modules)\n{code}", "set(sys.modules) - before")


def printed_after(code: str, names: str) -> set[str]:
    listing = f"{code}\nprint(*({names}))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
