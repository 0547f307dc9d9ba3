"""A worker previews which fields of stored orders a fetch would change, on request over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from http_api import Api, Key, running_api
from integration.scene import Scene, document, ids
from integration.test_paused_sources import Operator
from support import eventually

from ingest.domain.errors import UserError
from ingest.domain.operating.controls import Drain
from ingest.domain.operating.jobs import JobKind, JobState
from ingest.domain.orders.order_filter import OrderFilter
from ingest.operations.jobs import resume
from ingest.operations.jobs.orders import preview_request
from ingest.operations.stored_orders.orders import erase
from ingest.queue.operate.controls import ControlRecord
from ingest.store.connections.pool import Pool
from ingest.store.jobs import Jobs

CHANGED = {"kind": "orders.preview", "orders": {"status": "changed"}}


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, Key("operator")) as api:
        yield api


async def store(scene: Scene, count: int) -> list[str]:
    """Store orders through a worker, and return their IDs. Afterwards their rows differ from their documents."""
    stored = ids(count)
    for order_id in stored:
        scene.api.put_order(order_id, document(order_id))
    await scene.enqueue(*stored)
    async with scene.worker():
        await scene.finished()
    await scene.sql("UPDATE orders SET status = 'changed'")
    return stored


async def state_of(api: Api, job: int, state: str) -> dict[str, Any]:
    """Wait until a job is in this state."""

    async def found() -> dict[str, Any] | None:
        _, shown = await api.get(f"/v1/jobs/{job}")
        return shown if shown["state"] == state else None

    shown = await eventually(found)
    assert shown is not None
    return shown


async def test_a_worker_shows_the_fields_that_a_fetch_would_change_and_changes_nothing(scene: Scene, api: Api) -> None:
    stored = await store(scene, 5)
    scene.api.delete_order(stored[1])
    before = await scene.rows()

    status, added = await api.post("/v1/jobs", json={**CHANGED, "sample": 3})
    waiting = (await api.get(f"/v1/jobs/{added['id']}"))[1]
    async with scene.worker():
        requests = scene.api.stats().requests
        done = await state_of(api, added["id"], "done")
        requests = scene.api.stats().requests - requests

    assert (status, waiting["state"], waiting["result"]) == (202, "waiting", None)
    assert (done["done"], done["examined"], done["holder"], done["error"]) == (0, 3, "w", None)
    [failure] = done["result"].pop("failures")
    assert failure["order_id"] == stored[1]
    examples = [{"order_id": each, "before": "changed", "after": "placed"} for each in (stored[0], stored[2])]
    fields = [{"field": "status", "orders": 2, "examples": examples}]
    assert done["result"] == {"count": 5, "fetched": 3, "changed": 2, "fields": fields}
    assert await scene.rows() == before
    assert await scene.is_finished()
    assert requests <= 4
    audited = await scene.sql("SELECT actor, action FROM audit_log WHERE phase = 'done'")
    assert [tuple(row) for row in audited] == [("operator", "orders.preview"), ("operator", "jobs.read")]


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "orders.preview"},
        {"kind": "orders.preview", "orders": {}},
        {**CHANGED, "sample": 0},
        {**CHANGED, "sample": 101},
        {**CHANGED, "rate": 5},
        {**CHANGED, "kind": "orders.enqueue", "sample": 5},
    ],
)
async def test_an_invalid_preview_is_rejected(api: Api, body: dict[str, object]) -> None:
    assert (await api.post("/v1/jobs", json=body))[0] == 422


async def test_a_preview_sends_no_request_while_an_operator_has_paused_the_source(scene: Scene, api: Api) -> None:
    await store(scene, 3)
    operator = Operator(scene)
    await operator.pause()
    _, added = await api.post("/v1/jobs", json=CHANGED)

    async with scene.worker():

        async def waits() -> bool:
            return (await api.get(f"/v1/jobs/{added['id']}"))[1]["error"] == "the source is paused"

        await eventually(waits)
        begun = await operator.requests_after(1.0)
        await operator.resume()
        done = await state_of(api, added["id"], "done")

    assert begun == 0
    assert done["result"]["changed"] == 3


async def test_a_drained_worker_leaves_the_preview_to_another_one(scene: Scene, api: Api) -> None:
    await store(scene, 1)
    drain = Drain(since=datetime.now(UTC), by="me")
    await ControlRecord(scene.redis, scene.queue).set_drains({"web1-1f0c22ab-0": drain})
    _, added = await api.post("/v1/jobs", json=CHANGED)

    async with scene.worker("web1-1f0c22ab-0"):
        # Longer than between two looks for a preview.
        await asyncio.sleep(8.0)
        waiting = (await api.get(f"/v1/jobs/{added['id']}"))[1]
        async with scene.worker("web2-1f0c22ab-0"):
            done = await state_of(api, added["id"], "done")

    assert (waiting["state"], waiting["holder"]) == ("waiting", None)
    assert done["holder"] == "web2-1f0c22ab-0"


async def test_a_preview_requests_single_orders_from_a_list_endpoint(scene: Scene, api: Api) -> None:
    stored = await store(scene, 5)
    _, added = await api.post("/v1/jobs", json=CHANGED)
    before = scene.api.stats()

    async with scene.worker(upstream_bulk_url=scene.api.list_template, upstream_bulk_size=3):
        done = await state_of(api, added["id"], "done")

    after = scene.api.stats()
    assert (done["result"]["changed"], done["result"]["failures"]) == (5, [])
    assert after.requests - before.requests == after.orders - before.orders == len(stored)


async def test_a_command_cannot_run_a_preview(scene: Scene, api: Api) -> None:
    _, added = await api.post("/v1/jobs", json=CHANGED)

    async with Pool.open(scene.dsn) as pool:
        found = await Jobs(pool).get(added["id"])
        assert found is not None
        with pytest.raises(UserError, match="which a worker runs"):
            await resume(Jobs(pool), found, "me", "this command")

    assert (await api.get(f"/v1/jobs/{added['id']}"))[1]["state"] == "waiting"


async def test_a_preview_keeps_the_quota_of_the_source(scene: Scene, api: Api) -> None:
    stored = await store(scene, 6)
    scene.api.behave(rate_limit=2, rate_burst=2)
    _, added = await api.post("/v1/jobs", json=CHANGED)

    async with scene.worker(upstream_rate=2, upstream_burst=1):
        done = await state_of(api, added["id"], "done")

    assert (done["result"]["fetched"], done["result"]["failures"]) == (len(stored), [])
    assert "429" not in scene.api.stats().by_status


async def test_a_preview_waits_when_the_api_throttles(scene: Scene, api: Api) -> None:
    stored = await store(scene, 6)
    scene.api.behave(rate_limit=2, rate_burst=2, retry_after=1)
    _, added = await api.post("/v1/jobs", json=CHANGED)

    async with scene.worker():
        done = await state_of(api, added["id"], "done")

    assert (done["result"]["fetched"], done["result"]["failures"]) == (len(stored), [])
    assert 0 < scene.api.stats().by_status["429"] < len(stored)


async def test_an_outage_that_opens_the_circuit_is_no_failure_of_the_previewed_orders(scene: Scene, api: Api) -> None:
    await store(scene, 3)
    scene.api.behave(down="503")
    await scene.enqueue(*ids(40, "new"))

    async with scene.worker() as worker:
        await eventually(lambda: worker.metric("ingest_circuit_open") == 1)
        _, added = await api.post("/v1/jobs", json=CHANGED)

        async def waits() -> bool:
            return bool((await api.get(f"/v1/jobs/{added['id']}"))[1]["error"])

        await eventually(waits)
        scene.api.behave(down=None)
        done = await state_of(api, added["id"], "done")

    assert (done["result"]["fetched"], done["result"]["failures"]) == (3, [])


async def test_a_cancelled_preview_sends_no_further_request_and_can_begin_again(scene: Scene, api: Api) -> None:
    await store(scene, 8)
    scene.api.behave(latency="0.5")
    _, added = await api.post("/v1/jobs", json=CHANGED)
    path = f"/v1/jobs/{added['id']}"

    async with scene.worker():

        async def has_begun() -> bool:
            return bool((await api.get(path))[1]["examined"])

        await eventually(has_begun)
        assert (await api.post(f"{path}/cancel"))[1]["state"] == "cancelled"
        await asyncio.sleep(2.0)
        requests = scene.api.stats().requests
        await asyncio.sleep(1.0)
        assert scene.api.stats().requests == requests
        scene.api.behave(latency="0")
        assert (await api.post(f"{path}/resume"))[0] == 202
        done = await state_of(api, added["id"], "done")

    assert done["result"]["fetched"] == 8


async def test_a_worker_that_stops_lets_another_one_begin_the_preview_again(scene: Scene, api: Api) -> None:
    await store(scene, 8)
    scene.api.behave(latency="0.5")
    _, added = await api.post("/v1/jobs", json=CHANGED)
    path = f"/v1/jobs/{added['id']}"

    async with scene.worker("one") as worker:
        await state_of(api, added["id"], "running")
        await worker.stop()
        stopped = (await api.get(path))[1]
    async with scene.worker("two"):
        done = await state_of(api, added["id"], "done")

    assert (stopped["state"], stopped["holder"]) == ("waiting", "one")
    assert (done["holder"], done["result"]["fetched"]) == ("two", 8)


async def test_an_erased_order_disappears_from_the_results_of_previews(scene: Scene, api: Api) -> None:
    stored = await store(scene, 3)
    _, first = await api.post("/v1/jobs", json=CHANGED)
    _, other = await api.post("/v1/jobs", json={"kind": "orders.preview", "orders": {"ids": [stored[0]]}})
    async with scene.worker():
        for job in (first, other):
            await state_of(api, job["id"], "done")

    await erase(scene.api_backends(), [stored[1]], "me")

    assert (await api.get(f"/v1/jobs/{first['id']}"))[1]["result"] is None
    assert (await api.get(f"/v1/jobs/{other['id']}"))[1]["result"]["changed"] == 1
    async with Pool.open(scene.dsn) as pool:
        jobs = Jobs(pool)
        held = await jobs.add(preview_request(OrderFilter(ids=tuple(stored))), "cli:me", "one")
        assert held is not None
        # As if the order was erased while the preview ran.
        await jobs.end(held, JobState.DONE, held.progress, None, {"count": 3}, stored)
        ended = await jobs.get(held.id)
        assert ended is not None
        assert (ended.kind, ended.state, await jobs.result(held.id)) == (JobKind.PREVIEW, JobState.DONE, None)


async def test_a_job_that_may_have_killed_several_workers_fails_and_can_be_resumed(scene: Scene, api: Api) -> None:
    await store(scene, 1)
    _, added = await api.post("/v1/jobs", json=CHANGED)
    async with Pool.open(scene.dsn, size=1) as pool:
        for _ in range(4):
            await Jobs(pool).take(added["id"], "a process that dies")
            await scene.sql("UPDATE jobs SET leased_until = now()")
        released = await Jobs(pool).take(added["id"], "a process that stops")
        assert released is not None
        await Jobs(pool).release(released)
        await Jobs(pool).take(added["id"], "the last process that dies")
        await scene.sql("UPDATE jobs SET leased_until = now()")

    async with scene.worker():
        failed = await state_of(api, added["id"], "failed")
        await api.post(f"/v1/jobs/{added['id']}/resume")
        await state_of(api, added["id"], "done")

    assert failed["error"] == "5 processes have died or stalled while they ran it"
