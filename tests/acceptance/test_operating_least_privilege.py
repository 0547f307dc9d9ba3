"""Operations over HTTP and `ingest order` need no more rights than deploy/ gives the API."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.commands import WorkerCommand
from accounts import PASSWORD, QUEUE, create_user
from dead_letter_entries import dead_fields
from integration.scene import Scene, document
from redis import Redis
from servers.kinds import KINDS, WITH_XNACK, Kind
from shipped import as_api
from support import Cli, closing_cli, eventually

from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.partitions import Layout
from ingest.queue.partitions.layout_record import LayoutRecord

JSON = {"Content-Type": "application/json"}


@pytest.fixture(params=[KINDS[0], *WITH_XNACK], ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URLs of one server with all rights and with the API's rights."""
    kind: Kind = request.param
    with kind.server(tmp_path / "server") as running:
        yield running.url, create_user(running.url, kind, "ingest-api")


@pytest.fixture
def limited(server: tuple[str, str], dsn: str, env: dict[str, str], tmp_path: Path) -> Iterator[Cli]:
    (tmp_path / "password").write_text(PASSWORD)
    own = {
        "INGEST_STREAM": QUEUE,
        "INGEST_REDIS_URL": server[1],
        "INGEST_REDIS_PASSWORD_FILE": str(tmp_path / "password"),
        "INGEST_POSTGRES_DSN": as_api(dsn),
        "INGEST_API_PORT": "0",
        "INGEST_API_METRICS_PORT": "0",
    }
    with closing_cli(env | own) as cli:
        yield cli


async def fill(scene: Scene) -> None:
    """A stored order, a queued one, one in flight, and dead letters."""
    await scene.add(order_id="stored", document=document("stored"))
    async with scene.worker():
        await scene.stored_at_least(1)
        await scene.finished()
    await scene.enqueue("retried", "later", "held")
    async with scene.consumer("w") as consumer:
        retried, later, _ = await consumer.read(3, 1.0)
        for delivery in (retried, later):
            await consumer.reschedule(delivery, 3_600.0, 2, RetryReason.TIMEOUT, "no answer")
    for order_id in ("dead", "erased"):
        await scene.redis.xadd(scene.keys.dead, dead_fields(order_id))  # type: ignore[arg-type]


async def test_the_api_role_and_user_do_all_operations_and_nothing_is_refused(
    server: tuple[str, str], limited: Cli, dsn: str, request: pytest.FixtureRequest
) -> None:
    # The commands of partitions do not depend on the kind of server.
    has_partitions = request.node.callspec.params["server"] == KINDS[0]
    async with Scene.open(server[0], dsn, QUEUE) as scene:
        await fill(scene)
        if has_partitions:
            record = LayoutRecord(scene.redis, QUEUE, 3)
            await record.read()
            await record.write(Layout(QUEUE, 3, (1,), 2))
    api = WorkerCommand(limited.start("api"))
    try:
        async with aiohttp.ClientSession(str((await api.says("listening"))["url"])) as http:

            async def call(method: str, path: str, body: object = None) -> tuple[int, Any]:
                async with http.request(method, path, json=body) as answer:
                    return answer.status, await answer.json(content_type=None)

            _, export = await call(
                "POST", "/v1/jobs", {"kind": "dead_letters.export", "selection": {"everything": True}}
            )

            async def is_exported() -> bool:
                async with http.get(f"/v1/jobs/{export['id']}/output") as response:
                    return response.status == 200 and '"dead"' in await response.text()

            await eventually(is_exported)
            answers = [
                await call("GET", "/v1/orders"),
                await call("GET", "/v1/orders/stored"),
                await call("GET", "/v1/orders/held"),
                await call("GET", "/v1/queue"),
                await call("GET", "/v1/queue/consumers"),
                await call("GET", "/v1/retries"),
                await call("POST", "/v1/retries/run-now", {"ids": ["retried"]}),
                await call("POST", "/v1/retries/dead-letter", {"ids": ["later"]}),
                await call("GET", "/v1/dead-letters"),
                await call("POST", "/v1/dead-letters/replay", {"ids": ["dead"]}),
                await call("DELETE", "/v1/orders/erased"),
                await call("POST", "/v1/dead-letters/drop", {"everything": True}),
                await call("GET", "/v1/orders/erased"),
            ]
    finally:
        api.close()
    shown = await asyncio.to_thread(limited.run, "order", "show", "stored", "--json")
    erased = await asyncio.to_thread(limited.run, "order", "erase", "stored", "--yes", "--json")

    assert [status for status, _ in answers] == [200] * len(answers), answers
    assert ("partitions" in answers[3][1]) == has_partitions
    assert json.loads(shown.stdout)["order"]["id"] == "stored"
    assert json.loads(erased.stdout)["removed"] == {"rows": 1, "retries": 0, "dead_letters": 0}
    with Redis.from_url(server[0], decode_responses=True) as admin:
        assert admin.acl_log() == []
