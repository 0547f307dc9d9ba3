"""A preview of a fetch by real processes with the least privileges. The worker is killed in the middle, and keys are limited."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from acceptance.commands import WorkerCommand, Workers, closing_workers
from acceptance.several_sources import Shops
from integration.scene import Scene, document, ids
from shipped import environment_of
from support import Cli, eventually

from ingest.domain.api_key import Scope
from ingest.operations import api_keys
from ingest.operations.api_keys import limit_of

SHOP, OTHER = "shop-de", "shop-fr"
ORDERS = ids(6)
PREVIEW = {"kind": "orders.preview", "orders": {"status": "placed"}, "sample": 4}


@dataclass
class Site:
    """Two shops, `ingest api` as a process, and its keys."""

    shops: Shops
    workers: Workers
    http: aiohttp.ClientSession
    keys: dict[str, str]

    async def call(self, key: str, method: str, path: str, body: object = None, source: str = SHOP) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.keys[key]}"}
        async with self.http.request(method, f"/v1/sources/{source}{path}", json=body, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def state(self, path: str) -> dict[str, Any]:
        shown: dict[str, Any] = (await self.call("read", "GET", path))[1]
        return shown


@asynccontextmanager
async def opened(scene: Scene, cli: Cli, folder: Path) -> AsyncIterator[Site]:
    operate = [Scope.READ, Scope.PERSONAL, Scope.OPERATE]
    file, limit = folder / "keys", limit_of(10_000, 10_000)
    keys = {"read": api_keys.create(file, "read", [Scope.READ, Scope.PERSONAL], limit)[0]}
    for source in (SHOP, OTHER):
        keys[source] = api_keys.create(file, source, operate, limit, [source])[0]
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        shops = await enter(Shops.open(scene, folder / "sources.toml", SHOP, OTHER))
        env = dict(shops.workers(cli).env)
        workers = stack.enter_context(closing_workers(cli, env))
        own = {"INGEST_API_KEYS_FILE": str(file), "INGEST_API_PORT": "0"}
        own["INGEST_API_METRICS_PORT"] = "0"
        api = WorkerCommand(cli.start("api", env={**environment_of(["api"], env), **own}))
        stack.callback(api.close)
        url = str((await api.says("listening"))["url"])
        yield Site(shops, workers, await enter(aiohttp.ClientSession(url)), keys)


async def test_another_worker_previews_changed_documents_after_the_first_one_was_killed(
    scene: Scene, cli: Cli, tmp_path: Path
) -> None:
    async with opened(scene, cli, tmp_path) as site:
        shop = site.shops[SHOP]
        for order_id in ORDERS:
            shop.api.put_order(order_id, document(order_id))
        first = site.workers.start(processes=1)
        await shop.enqueue(*ORDERS)
        await site.shops.stored(SHOP, ORDERS)
        for order_id in ORDERS:
            shop.api.put_order(order_id, document(order_id, status="shipped"))
        shop.api.behave(latency="2")

        denied = [
            await site.call("read", "POST", "/jobs", PREVIEW),
            await site.call(OTHER, "POST", "/jobs", PREVIEW),
            await site.call(SHOP, "POST", "/jobs", PREVIEW, OTHER),
        ]
        status, added = await site.call(SHOP, "POST", "/jobs", PREVIEW)
        path = f"/jobs/{added['id']}"

        async def has_begun() -> bool:
            return bool((await site.state(path))["examined"])

        await eventually(has_begun)
        killed_holder = (await site.state(path))["holder"]
        first.close()
        shop.api.behave(latency="0")
        site.workers.start(processes=1)

        async def is_done() -> bool:
            return bool((await site.state(path))["state"] == "done")

        await eventually(is_done, within=60)
        done = await site.state(path)
        hidden = await site.call(OTHER, "GET", path)
        by_command = await asyncio.to_thread(cli.run, "job", "show", str(done["id"]), env=site.shops.workers(cli).env)
        rows = await scene.sql("SELECT DISTINCT status FROM orders")

        assert [each[0] for each in denied] == [403, 403, 403]
        assert (status, hidden[0]) == (202, 403)
        assert done["holder"] != killed_holder
        assert (done["result"]["count"], done["result"]["fetched"], done["result"]["changed"]) == (6, 4, 4)
        [field] = done["result"]["fields"]
        assert (field["field"], field["orders"]) == ("status", 4)
        assert json.loads(by_command.stdout)["result"] == done["result"]
        assert field["examples"][0] == {"order_id": ORDERS[0], "before": "placed", "after": "shipped"}
        assert [row["status"] for row in rows] == ["placed"]

        again, _ = await site.call(SHOP, "POST", "/jobs", {"kind": "orders.enqueue", "orders": PREVIEW["orders"]})

        async def are_stored() -> bool:
            found = await scene.sql("SELECT DISTINCT status FROM orders")
            return [row["status"] for row in found] == ["shipped"]

        await eventually(are_stored)
        assert again == 202
