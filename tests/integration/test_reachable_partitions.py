"""Dead letters and retries are listed, grouped, shown, downloaded and changed while a node of a cluster is down."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from cluster_set import ClusterSet
from dead_letter_entries import dead_fields
from http_api import Api, running_api
from servers.kinds import KINDS
from support import eventually

from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key
from ingest.queue.redis.connection import control_client

ORDERS = [f"order-{number}" for number in range(60)]


class Scene:
    """The API of a queue on a cluster, of which one node has been killed.

    Attributes:
        api: started before the node was killed, or afterwards.
        missing: the queues of the partitions on that node, each with its address.
        left: the orders on the other nodes.
        ids: of the dead letters, by order.
    """

    def __init__(self, api: Api, missing: dict[str, str], left: set[str], ids: dict[str, str]) -> None:
        self.api = api
        self.missing = missing
        self.left = left
        self.ids = ids

    async def page(self, path: str) -> str:
        async with self.api.http.get(f"{self.api.url}/console/{path}") as response:
            return await response.text() if response.status == 200 else ""

    async def change(self, path: str, **selection: object) -> tuple[int, dict[str, str]] | None:
        """The number of entries of a change, and the missing partitions."""
        status, found = await self.api.post(f"/v1/{path}", json={"everything": True, **selection})
        return (found["count"], self.named(found["missing_partitions"])) if status == 200 else None

    @staticmethod
    def named(missing: list[dict[str, str]]) -> dict[str, str]:
        return {each["queue"]: each["server"] for each in missing}

    def names_missing(self, text: str) -> bool:
        return all(f"{queue}: {server} is " in text for queue, server in self.missing.items())


@pytest.fixture(params=["partition", "record", "record of a fresh process"])
async def scene(request: pytest.FixtureRequest, queue_name: str, dsn: str, tmp_path: Path) -> AsyncIterator[Scene]:
    options = {"cluster_require_full_coverage": "no", "cluster_node_timeout": "500"}
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0, **options) as cluster:
        await cluster.become_ready()
        layout, is_fresh = Layout(queue_name, 6), request.param == "record of a fresh process"
        ids: dict[str, str] = {}
        async with control_client(cluster.url()) as client:
            await LayoutRecord(client, queue_name, 6).read()
            for order_id in ORDERS:
                keys = Keys.of(queue := layout.queue_of_order(order_id))
                entry_id: bytes = await client.xadd(keys.dead, dead_fields(order_id))  # type: ignore[arg-type]
                ids[order_id] = entry_id.decode() + queue.removeprefix(layout.queue)
                fields = ["order_id", order_id, "attempt", "3", "retry_reason", "timeout", "retry_error", "no answer"]
                await client.hset(keys.retry_entries, f"1-{order_id}", msgspec.msgpack.encode(fields))  # type: ignore[arg-type, misc]
                await client.zadd(keys.retry, {f"1-{order_id}": 4_000_000_000_000})
        record = await cluster.owner(layout_key(queue_name))
        owners = {queue: await cluster.owner(Keys.of(queue).dead) for queue in layout.current}
        victim = next(node for node in owners.values() if (node is record) == (request.param != "partition"))
        server = f"127.0.0.1:{victim.port}"
        missing = {queue: server for queue, node in owners.items() if node is victim}
        left = {order_id for order_id in ORDERS if layout.queue_of_order(order_id) not in missing}
        if is_fresh:
            victim.kill()
        async with running_api(cluster.url(), dsn, queue_name, partitions=6) as api:
            if not is_fresh:
                assert (await api.get("/v1/retries"))[0] == 200  # it has read the record
                victim.kill()
            if request.param != "partition":
                missing[queue_name] = server
            yield Scene(api, missing, left, ids)


async def test_reachable_entries_are_shown_downloaded_and_changed_and_missing_partitions_are_named(
    scene: Scene,
) -> None:
    await is_downloaded_without_missing_partitions(scene)
    for kind, change in (("dead-letters", "replay"), ("retries", "run-now")):
        await is_shown_without_missing_partitions(scene, kind)
        await is_changed_without_missing_partitions(scene, kind, change)


async def is_shown_without_missing_partitions(scene: Scene, kind: str) -> None:
    async def is_listed() -> bool:
        status, page = await scene.api.get(f"/v1/{kind}?limit=500")
        return status == 200 and (
            {each["order_id"] for each in page[kind.replace("-", "_")]},
            scene.named(page["missing_partitions"]),
        ) == (scene.left, scene.missing)

    async def is_grouped() -> bool:
        status, page = await scene.api.get(f"/v1/{kind}/groups")
        return status == 200 and (
            sum(each["count"] for each in page["groups"]),
            scene.named(page["missing_partitions"]),
        ) == (len(scene.left), scene.missing)

    async def is_on_its_page() -> bool:
        text = await scene.page(f"{kind}?source=&reason={'timeout' if kind == 'retries' else 'not_found'}")
        return scene.names_missing(text) and all((f">{each}<" in text) == (each in scene.left) for each in ORDERS)

    async def is_on_the_page_of_groups() -> bool:
        text = await scene.page(f"{kind}")
        return scene.names_missing(text) and re.search(rf'<td[^>]* class="number"[^>]*>{len(scene.left)}</td>', text)

    for is_shown in (is_listed, is_grouped, is_on_its_page, is_on_the_page_of_groups):
        await eventually(is_shown, within=60, every=0.2)


async def is_changed_without_missing_partitions(scene: Scene, kind: str, change: str) -> None:
    path, expected = f"{kind}/{change}", (len(scene.left), scene.missing)

    async def is_counted() -> bool:
        return await scene.change(path, dry_run=True) == expected

    async def is_previewed() -> bool:
        text = await scene.page(f"{path}?source=")
        return scene.names_missing(text) and f"<strong>{len(scene.left)}</strong>" in text

    for is_shown in (is_counted, is_previewed):
        await eventually(is_shown, within=60, every=0.2)
    changed = await scene.change(path)
    again = await scene.change(path, dry_run=True)

    # Retries that run now stay until a worker moves them.
    left = 0 if kind == "dead-letters" else len(scene.left)
    assert (changed, again) == (expected, (left, scene.missing))


async def is_downloaded_without_missing_partitions(scene: Scene) -> None:
    async def shown(order_id: str) -> int:
        return (await scene.api.get(f"/v1/dead-letters/{scene.ids[order_id]}"))[0]

    one_of_each_partition = {scene.ids[order_id].partition("/")[2]: order_id for order_id in ORDERS}.values()

    async def is_shown() -> bool:
        return all([await shown(each) == (200 if each in scene.left else 503) for each in one_of_each_partition])

    async def downloaded(path: str) -> tuple[set[str], set[str], bool]:
        async with scene.api.http.get(f"{scene.api.url}/{path}") as response:
            orders = {json.loads(line)["order_id"] for line in (await response.text()).splitlines()}
            missing = set(json.loads(response.headers.get("Missing-Partitions", "[]")))
            return orders, missing, "incomplete" in response.headers.get("Content-Disposition", "")

    async def is_downloaded() -> bool:
        paths = ("v1/dead-letters/export", "console/dead-letters/export?source=")
        return [await downloaded(path) for path in paths] == 2 * [(scene.left, {*scene.missing}, True)]

    # The record of partitions that a process knows is used for some seconds.
    for is_right in (is_shown, is_downloaded):
        await eventually(is_right, within=60, every=0.2)
