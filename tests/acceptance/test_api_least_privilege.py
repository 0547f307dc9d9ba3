"""`ingest api` works with no more rights than deploy/ gives it, on each server that it supports."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.accounts import FORBIDDEN, PASSWORD, QUEUE, create_user, permitted
from acceptance.commands import WorkerCommand
from redis import Redis
from servers.kinds import KINDS, WITH_NEW_COMMANDS, Kind
from support import Cli

from ingest.queue.keys import Keys

ORDER = {
    "id": "5", "status": "placed", "placed_at": "2026-11-22T12:00:00Z", "updated_at": None, "currency": "GBP", "customer_id": None,
    "country": None, "lines": [],
}  # fmt: skip
# What a worker may do and the API may not: take deliveries, finish them, change groups, use the quotas.
WORKERS_ALONE = [
    "XREADGROUP GROUP ingest x STREAMS ingest:{orders}:stream >",
    "XCLAIM ingest:{orders}:stream ingest x 0 1-1",
    "XAUTOCLAIM ingest:{orders}:stream ingest x 0 0",
    "XACK ingest:{orders}:stream ingest 1-1",
    "XTRIM ingest:{orders}:stream MAXLEN 0",
    "XGROUP CREATE ingest:{orders}:stream more 0",
    "XGROUP DELCONSUMER ingest:{orders}:stream ingest x",
    "GET ingest:{quota:x}:rate",
]

TESTED_KINDS = [KINDS[0], *WITH_NEW_COMMANDS]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URLs of one server: with all rights, and with those of the API."""
    kind: Kind = request.param
    with kind.server(tmp_path / "server", appendonly="yes") as running:
        yield running.url, create_user(running.url, kind, "ingest-api")


@pytest.fixture
def api(server: tuple[str, str], cli: Cli, tmp_path: Path) -> Iterator[WorkerCommand]:
    (tmp_path / "password").write_text(PASSWORD)
    settings = {
        "INGEST_STREAM": QUEUE,
        "INGEST_REDIS_URL": server[1],
        "INGEST_REDIS_PASSWORD_FILE": str(tmp_path / "password"),
        "INGEST_API_PORT": "0",
        "INGEST_API_METRICS_PORT": "0",
        "INGEST_BACKLOG_LIMIT": "4",
        "INGEST_DURABILITY": "fsync",
    }
    command = WorkerCommand(cli.start("api", env=settings))
    yield command
    command.close()


@pytest.fixture
async def http(api: WorkerCommand) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(str((await api.says("listening"))["url"])) as session:
        yield session


async def status(http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> int:
    async with http.request(method, path, **options) as answer:
        return answer.status


def refused(url: str) -> list[dict[str, Any]]:
    """What the server has refused its users."""
    with Redis.from_url(url, decode_responses=True) as admin:
        return [{key: entry[key] for key in ("reason", "object", "username", "context")} for entry in admin.acl_log()]


@pytest.mark.parametrize("server", TESTED_KINDS, ids=lambda kind: kind.name, indirect=True)
async def test_the_api_announces_orders_and_no_command_is_refused(
    server: tuple[str, str], http: aiohttp.ClientSession
) -> None:
    once = {"Idempotency-Key": '"once"'}
    lines = {"Content-Type": "application/x-ndjson"}

    answers = [
        await status(http, "POST", "/v1/orders", json={"order_ids": ["1"]}, headers=once),
        await status(http, "POST", "/v1/orders", json={"order_ids": ["1"]}, headers=once),
        await status(http, "POST", "/v1/orders", json={"order_ids": ["2"], "express": True}),
        await status(http, "POST", "/v1/orders", data=b"3\n4\n", headers=lines),
        await status(http, "PUT", f"/v1/orders/{ORDER['id']}", json=ORDER),
        await status(http, "POST", "/v1/orders", json={"order_ids": ["6"]}),
        await status(http, "GET", "/readyz"),
    ]

    assert answers == [202] * 5 + [429, 200]
    assert refused(server[0]) == []
    with Redis.from_url(server[0]) as admin:
        assert admin.xlen(Keys.of(QUEUE).stream) == 4


def test_the_user_of_the_api_can_do_nothing_else(server: tuple[str, str]) -> None:
    assert permitted(server[1], "ingest-api", [*FORBIDDEN, *WORKERS_ALONE]) == []


def test_the_user_of_the_api_can_wait_for_disk_and_replicas(
    server: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    kind: Kind = request.node.callspec.params["server"]
    commands = ["WAIT 0 1", *(["WAITAOF 0 0 1"] if kind.knows_setinfo else [])]

    assert permitted(server[1], "ingest-api", commands) == commands
