"""The audit log over HTTP and by command."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from http_api import running_api
from integration.scene import Scene
from support import Cli

from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.domain.api_key import Scope
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
    async with Pool.open(scene.dsn, size=1) as pool:
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
    env = {"INGEST_REDIS_URL": scene.redis_url, "INGEST_POSTGRES_DSN": scene.dsn}

    table = await asyncio.to_thread(cli.run, "audit", "--since", "1h", env=env)
    as_json = await asyncio.to_thread(cli.run, "audit", "--json", "--action", "pause", env=env)
    none = await asyncio.to_thread(cli.run, "audit", "--actor", "nobody", env=env)

    assert "pause" in table.stdout
    assert json.loads(as_json.stdout)["selection"] == {"reason": "sale"}
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no changes\n")
