"""`ingest api` works with no more rights than deploy/ gives it, on each server that it supports."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from acceptance.commands import WorkerCommand
from accounts import (
    FORBIDDEN,
    OF_A_SOURCE,
    PASSWORD,
    QUEUE,
    create_user,
    permitted,
    refused_in_scripts,
    script_names,
)
from redis import Redis
from servers.kinds import KINDS, WITH_XNACK, Kind
from shipped import as_api
from support import Cli, logged_in

from ingest.queue.layout.keys import Keys

ORDER = {
    "id": "5", "status": "placed", "placed_at": "2026-11-22T12:00:00Z", "updated_at": None, "currency": "GBP", "customer_id": None,
    "country": None, "lines": [],
}  # fmt: skip
# Actions of workers that the API may not perform: take deliveries, finish them, change groups, use the quotas.
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

TESTED_KINDS = [KINDS[0], *WITH_XNACK]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URLs of one server with all rights and with the API's rights."""
    kind: Kind = request.param
    with kind.server(tmp_path / "server", appendonly="yes") as running:
        yield running.url, create_user(running.url, kind, "ingest-api")


@pytest.fixture
def api_dsn(dsn: str) -> str:
    return as_api(dsn)


@pytest.fixture
def api(
    server: tuple[str, str], api_dsn: str, cli: Cli, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[WorkerCommand]:
    (tmp_path / "password").write_text(PASSWORD)
    kind: Kind = request.node.callspec.params["server"]
    settings = {
        "INGEST_POSTGRES_DSN": api_dsn,
        "INGEST_STREAM": QUEUE,
        "INGEST_REDIS_URL": server[1],
        "INGEST_REDIS_PASSWORD_FILE": str(tmp_path / "password"),
        "INGEST_API_PORT": "0",
        "INGEST_API_METRICS_PORT": "0",
        "INGEST_BACKLOG_LIMIT": "4",
        # Without CONFIG GET, only Redis 8 can confirm it.
        "INGEST_DURABILITY": "fsync" if kind.is_redis_since(8) else "memory",
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
    """The commands that the server has denied."""
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
        await status(http, "POST", "/v1/pause", json={"reject_orders": True}),
        await status(http, "POST", "/v1/resume", json={}),
        await status(http, "GET", "/v1/workers"),
        await status(http, "GET", "/readyz"),
    ]

    assert answers == [202] * 5 + [429] + [200] * 4
    assert refused(server[0]) == []
    with Redis.from_url(server[0]) as admin:
        assert admin.xlen(Keys.of(QUEUE).stream) == 4


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE orders",
        "TRUNCATE orders",
        "UPDATE orders SET status = 'paid'",
        "INSERT INTO orders (order_id) VALUES ('1')",
        "DELETE FROM erased_orders",
        "UPDATE erased_orders SET erased_at = now()",
        "UPDATE audit_log SET actor = 'nobody'",
        "DELETE FROM audit_log",
        "UPDATE schema_migrations SET version = 0",
        "CREATE TABLE more (id int)",
    ],
)
async def test_the_role_of_the_api_can_neither_write_orders_nor_change_what_was_logged(
    api_dsn: str, statement: str
) -> None:
    async with logged_in(api_dsn) as sql:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await sql.execute(statement)


def test_the_user_of_the_api_can_do_nothing_else(server: tuple[str, str]) -> None:
    assert permitted(server[1], "ingest-api", [*FORBIDDEN, *WORKERS_ALONE, *OF_A_SOURCE]) == OF_A_SOURCE


@pytest.mark.parametrize("server", TESTED_KINDS, ids=lambda kind: kind.name, indirect=True)
async def test_the_pages_of_the_console_are_shown_and_no_command_is_refused(
    server: tuple[str, str], http: aiohttp.ClientSession
) -> None:
    await status(http, "POST", "/v1/orders", json={"order_ids": ["1"]})
    pages = ["", "sources", "sources/show", "sources/backfills", "workers", "audit", "settings", "help"]
    pages += ["orders", "orders/show?id=1", "jobs"]

    answers = {page: await status(http, "GET", f"/console/{page}") for page in pages}

    assert answers == dict.fromkeys(pages, 200)
    assert refused(server[0]) == []


def scripts_of_the_api() -> set[str]:
    """All scripts except the workers'."""
    of_workers = {
        *("ack", "ack_results", "reschedule", "dead_letter", "release", "read_lanes", "claim_own", "claim_abandoned"),
        *("heartbeat", "renew", "leave", "sweep", "move_due", "trim", "remove_consumers"),
        *("quota_lease", "quota_end", "quota_pause"),
        *("record_layout", "open_partition", "close_partition", "adopt_dead_letter", "repair_lane", "hold_change"),
        # Its user may only write the controls, which a test above does.
        "write_controls",
        "restore_controls",
    }
    return script_names() - of_workers


def test_each_command_of_each_script_of_the_api_is_allowed(server: tuple[str, str]) -> None:
    assert refused_in_scripts(server[0], "ingest-api", scripts_of_the_api()) == []


def test_the_user_of_the_api_can_wait_for_disk_and_replicas(
    server: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    kind: Kind = request.node.callspec.params["server"]
    commands = ["WAIT 0 1", *(["WAITAOF 0 0 1"] if kind.knows_setinfo else [])]

    assert permitted(server[1], "ingest-api", commands) == commands
