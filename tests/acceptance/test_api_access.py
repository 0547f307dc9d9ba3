"""`ingest api` with API keys as processes, and its admission, even while the file of the keys changes."""

import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.commands import WorkerCommand
from support import Cli, eventually

from ingest.domain.api_key import Scope
from ingest.operations import api_keys
from ingest.operations.api_keys import limit_of

ORDERS = {"order_ids": ["536365"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def metrics_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def limited(path: Path) -> str:
    """A key that may be used ten times."""
    return api_keys.create(path, "limited", [Scope.ENQUEUE], limit_of(0.001, 10))[0]


@pytest.fixture
def api(cli: Cli, path: Path, limited: str, metrics_port: int) -> Iterator[WorkerCommand]:
    del limited
    settings = {
        "INGEST_API_KEYS_FILE": str(path),
        "INGEST_API_PORT": "0",
        "INGEST_API_PROCESSES": "2",
        "INGEST_API_METRICS_PORT": str(metrics_port),
        "INGEST_LOG_LEVEL": "debug",
    }
    command = WorkerCommand(cli.start("api", env=settings))
    yield command
    command.close()


@pytest.fixture
async def url(api: WorkerCommand) -> str:
    return str((await api.says("listening"))["url"])


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    # A new connection for each request, which either process may accept.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        yield session


async def status(http: aiohttp.ClientSession, key: str, body: Any = None) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    async with http.post("/v1/orders", json=body or ORDERS, headers=headers) as answer:
        return answer.status


async def answers(http: aiohttp.ClientSession, key: str) -> set[int]:
    """Send requests to both processes, with enough connections to reach both practically always."""
    return {await status(http, key) for _ in range(24)}


async def answered(http: aiohttp.ClientSession, key: str, expected: int) -> None:
    """Wait until both processes answer with this status."""

    async def is_expected() -> bool:
        return await answers(http, key) == {expected}

    await eventually(is_expected)


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def repair(path: Path) -> None:
    """Take the last line out."""
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def remove(path: Path) -> None:
    path.unlink()


async def test_only_keys_in_force_are_admitted_and_no_key_is_logged(
    api: WorkerCommand, http: aiohttp.ClientSession, path: Path, metrics_port: int
) -> None:
    # A process that has read the second key has also read the first one.
    reader = api_keys.create(path, "reader", [Scope.READ], None)[0]
    key = api_keys.create(path, "later", [Scope.ENQUEUE], None)[0]

    await answered(http, key, 202)
    assert await status(http, reader) == 403
    assert await status(http, key[:-1] + ("a" if key[-1] != "a" else "b")) == 401
    async with http.post("/v1/orders", json=ORDERS) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="ingest"'
        assert (await answer.json(content_type=None))["code"] == "unauthorized"
    async with http.get("/healthz") as answer:
        assert answer.status == 200

    api_keys.revoke(path, ["later"])

    await answered(http, key, 401)
    async with http.get(f"http://127.0.0.1:{metrics_port}/metrics") as answer:
        counts = dict(re.findall(r'ingest_api_denied_total\{reason="(\w+)"\} ([\d.]+)', await answer.text()))
    assert float(counts["unknown_key"]) >= 8
    assert {name: float(count) for name, count in counts.items() if name != "unknown_key"} == {
        "no_key": 1.0, "malformed": 1.0, "scope": 1.0, "source": 0.0, "rate": 0.0,
    }  # fmt: skip
    assert await api.stop() == 0
    assert "ingest_" not in str(api.log)


async def test_a_file_that_cannot_be_used_leaves_the_keys_in_force_and_is_reported(
    api: WorkerCommand, http: aiohttp.ClientSession, path: Path
) -> None:
    key = api_keys.create(path, "later", [Scope.ENQUEUE], None)[0]

    await answered(http, key, 202)
    append(path, '{"name": "broken"}')
    said = await api.says("secret_not_reloaded", level="error")

    assert said["settings"] == "INGEST_API_KEYS_FILE"
    assert f"{path}, line 3: " in said["error"]
    assert await answers(http, key) == {202}
    remove(path)

    async def says_that_it_is_missing() -> bool:
        return any("No such file" in event["error"] for event in api.events("secret_not_reloaded"))

    await eventually(says_that_it_is_missing)
    assert await answers(http, key) == {202}


async def test_a_process_that_restarts_beside_a_broken_file_does_not_serve_with_keys_of_before(
    api: WorkerCommand, http: aiohttp.ClientSession, path: Path, limited: str
) -> None:
    api_keys.revoke(path, ["limited"])
    key = api_keys.create(path, "later", [Scope.ENQUEUE], None)[0]

    await answered(http, key, 202)
    append(path, "{}")
    os.kill(api.pid_of("api-0"), signal.SIGKILL)
    said = await api.says("refused")

    assert f"{path}, line 2: " in said["problem"]
    # The other process serves all connections during that time.
    assert await answers(http, key) == {202}
    assert await answers(http, limited) == {401}
    refusals = len(api.events("refused"))
    await eventually(lambda: len(api.events("refused")) > refusals)
    # The next start is at least half a second away, and reads the repaired file.
    before = len(api.events("process_started", process="api-0"))
    repair(path)

    async def has_started() -> bool:
        return len(api.events("process_started", process="api-0")) > before

    await eventually(has_started)
    assert await answers(http, key) == {202}


async def test_the_rate_of_a_key_holds_over_all_processes_and_connections(
    http: aiohttp.ClientSession, limited: str
) -> None:
    answers = [await status(http, limited) for _ in range(40)]

    assert answers == [202] * 10 + [429] * 30


def test_a_file_that_cannot_be_used_at_the_start_is_told_with_exit_code_2(cli: Cli, path: Path) -> None:
    append(path, "{}")

    broken = cli.run("api", env={"INGEST_API_KEYS_FILE": str(path), "INGEST_API_PORT": "0"})
    missing = cli.run("api", env={"INGEST_API_KEYS_FILE": str(path) + "x", "INGEST_API_PORT": "0"})

    assert broken.returncode == missing.returncode == 2
    assert broken.stderr == (f"ingest: INGEST_API_KEYS_FILE: {path}, line 1: Object missing required field `name`\n")
    assert missing.stderr == f"ingest: INGEST_API_KEYS_FILE: cannot read {path}x: No such file or directory\n"
