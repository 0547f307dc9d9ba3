"""The audit log over HTTP and by command."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import pytest
from dead_letter_entries import dead_fields
from http_api import NOWHERE, Api, running_api
from integration.scene import Scene
from shipped import as_api
from support import Cli

from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.cli.invocation import actor
from ingest.domain.api_key import Scope
from ingest.queue.layout.keys import Keys
from ingest.store.audit import AuditLog, Phase
from ingest.store.connections.pool import Pool


@dataclass(frozen=True, slots=True)
class LimitedKey:
    """Admits every request as a caller who may use one source."""

    source: str

    def admit(self, headers: Mapping[str, str], scope: Scope, source: str | None) -> Caller:
        del headers
        if source not in {None, self.source}:
            raise Problem(403, "missing_source", "limited")
        return Caller("limited", frozenset({scope}), sources=frozenset({self.source}))


async def record(scene: Scene, *sources: str) -> None:
    async with Pool.open(as_api(scene.dsn), size=1) as pool:
        for source in sources:
            operation = uuid4()
            for phase in (Phase.BEGUN, Phase.DONE):
                await AuditLog(pool, source).add(operation, phase, "ada", "pause", {"reason": "sale"}, 1)


async def test_changes_are_listed_in_pages_the_newest_first(scene: Scene) -> None:
    await record(scene, "a", "b", "c")

    async with running_api(scene.redis_url, scene.dsn, scene.queue) as api:
        pages = await api.pages("/v1/audit?limit=2", "operations")
        status, problem = await api.get("/v1/audit?colour=red")

    assert [[each["source"] for each in page] for page in pages] == [["c", "b"], ["a"]]
    first = pages[0][0]
    assert (first["actor"], first["action"], first["state"], first["count"]) == ("ada", "pause", "done", 1)
    assert first["selection"] == {"reason": "sale"}
    assert (status, problem["code"]) == (422, "unknown_parameter")


async def test_a_limited_key_sees_the_changes_of_its_sources_only(scene: Scene) -> None:
    await record(scene, "", "a", "b")

    async with running_api(scene.redis_url, scene.dsn, scene.queue, LimitedKey("a")) as api:
        [page] = await api.pages("/v1/audit?limit=100", "operations")
        status, _ = await api.get("/v1/audit?source=b")

    assert ([each["source"] for each in page], status) == (["a"], 403)


async def test_the_command_lists_the_same(scene: Scene, cli: Cli) -> None:
    await record(scene, "")
    env = {"INGEST_REDIS_URL": scene.redis_url, "INGEST_POSTGRES_DSN": as_api(scene.dsn)}

    table = await asyncio.to_thread(cli.run, "audit", "--since", "1h", env=env)
    as_json = await asyncio.to_thread(cli.run, "audit", "--json", "--action", "pause", env=env)
    none = await asyncio.to_thread(cli.run, "audit", "--actor", "nobody", env=env)

    assert "pause" in table.stdout
    assert json.loads(as_json.stdout)["selection"] == {"reason": "sale"}
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no changes\n")


async def test_each_read_of_documents_is_recorded_with_its_route_and_no_content(scene: Scene, cli: Cli) -> None:
    await scene.enqueue("stored")
    async with scene.worker(keep_document="on"):
        await scene.finished()
    fields: Any = dead_fields("dead", document="the content")
    entry = (await scene.redis.xadd(Keys.of(scene.queue).dead, fields)).decode()
    routes = {
        f"/v1/dead-letters/{entry}": "dead_letters.read",
        "/v1/dead-letters/export?reason=not_found": "dead_letters.export",
        "/console/orders/document?id=stored": "orders.read",
        "/console/orders/remap?prefix=stored": "orders.read",
        f"/console/dead-letters/show?id={entry}": "dead_letters.read",
        "/console/dead-letters/export?reason=not_found": "dead_letters.export",
    }
    lists = (
        "/v1/dead-letters",
        "/v1/orders",
        "/v1/orders/stored",
        "/console/orders",
        "/console/dead-letters",
        "/v1/jobs",
    )
    commands = {"dead show": ["dead"], "dead export": ["--reason", "not_found"], "dead list": ["--json"]}
    env = {"INGEST_REDIS_URL": scene.redis_url, "INGEST_POSTGRES_DSN": scene.dsn, "INGEST_STREAM": scene.queue}

    async with running_api(scene.redis_url, scene.dsn, scene.queue, keep_document="on") as api:
        statuses = [await status_of(api, path) for path in (*routes, *lists)]
    done = [await asyncio.to_thread(cli.run, *name.split(), *given, env=env) for name, given in commands.items()]
    listed = await asyncio.to_thread(cli.run, "dead", "list", env=env)

    rows = await scene.sql("SELECT actor, action, phase, count, selection::text FROM audit_log ORDER BY id")
    http = [("anonymous", action, f"GET {path.partition('?')[0]}") for path, action in routes.items()]
    by_command = [
        (actor(), f"dead_letters.{'export' if 'export' in name else 'read'}", f"ingest {name}") for name in commands
    ]
    assert {*statuses, *(each.returncode for each in (*done, listed))} == {200, 0}
    assert [(row[0], row[1], json.loads(row[4])["route"]) for row in rows] == http + by_command
    assert {tuple(row)[2:4] for row in rows} == {("done", None)}
    assert json.loads(rows[1][4])["reasons"] == ["not_found"]
    assert not any("the content" in row[4] for row in rows)


async def status_of(api: Api, path: str) -> int:
    async with api.http.get(api.url + path) as response:
        await response.read()
        return response.status


async def test_documents_are_read_and_the_log_says_so_if_the_audit_log_cannot_be_written(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    entry = (await scene.redis.xadd(Keys.of(scene.queue).dead, cast("Any", dead_fields("dead")))).decode()

    async with running_api(scene.redis_url, NOWHERE, scene.queue) as api:
        status, shown = await api.get(f"/v1/dead-letters/{entry}")

    assert (status, shown["order_id"]) == (200, "dead")
    assert "audit_incomplete" in capfd.readouterr().out
