"""The console's pages about orders, queues and jobs over real HTTP, for a single shop in partitions, and for invalid inputs."""

import csv
import io
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from html import unescape

import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar
from dead_letter_entries import dead_fields
from http_api import Api, running_api
from integration.scene import Scene
from support import eventually
from yarl import URL

from ingest.api.http.parameters import cursor_of
from ingest.domain.partitions import partition_queue
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer

PARTITIONS = 3
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
STORED = ["order 1", "order/2", "#3"]
DEAD = [f"gone-{number}" for number in range(20)]
PATHS = (
    "/orders", "/orders?status=placed&stored_from=2026-01-01T00:00:00&attribute=a=b", "/orders/show?id=%233", "/orders/show?source=&id=order/2",
    "/orders/document?id=order/2", "/orders/refetch?id=order/2", "/orders/erase", "/orders/erase?id=order/2", "/orders/erase?prefix=order", "/orders/enqueue", "/orders/enqueue?prefix=order", "/orders/remap?prefix=order", "/orders/remap?prefix=none",
    "/dead-letters", "/dead-letters?source=&text=gone-1", "/dead-letters?reason=not_found&shape=HTTP+404", "/dead-letters/replay",
    "/dead-letters/drop?text=gone-1", "/dead-letters/export", "/dead-letters/export?format=csv&text=gone-1", "/dead-letters/export-job", "/retries", "/retries?text=x",
    "/retries/run-now", "/retries/dead-letter?reason=timeout", "/jobs", "/sources/backfills", "/sources/pause", "/sources/resume",
    "/sources/tune", "/workers/drain?target=nobody",
    f"/orders?stored_from=2026-01-01&cursor={cursor_of(('2026-01-01T00:00:00.000001+00:00', '', 'x'))}",
)  # fmt: skip
INVALID = {
    "/orders?stored_from=yesterday": 422, "/orders?attribute=x": 422, "/orders?cursor=x": 422, "/orders?source=other": 404,
    "/orders/show?id=": 422, "/orders/show?id=missing": 404, "/orders/show?id=x&cursor=MQ": 422, "/orders/document?id=missing": 404,
    "/orders/refetch": 422, f"/orders?status={'x' * 600}": 422, "/orders?status=a%00b": 422, "/dead-letters?cursor=IngiCg": 422,
    "/dead-letters?since=2026-01-02T00:00&until=2026-01-01T00:00": 422, "/dead-letters/show?id=1-1": 404, "/dead-letters/show?id=x": 404,
    "/dead-letters/replay?chosen=1": 422, "/dead-letters/export-job?id=gone-1": 422, "/jobs/output?id=7": 404, "/retries?cursor=WyJ4IiwieSJd": 422, "/jobs/show?id=7": 404, "/jobs/show?id=x": 404,
    "/sources/backfills/start?since=2026-01-01T00:00": 409, "/jobs?cursor=InNvbWUi": 422,
    f"/orders?stored_from=2026-01-01&cursor={cursor_of(('yesterday', '', 'x'))}": 422,
    f"/orders?stored_from=2026-01-01&cursor={cursor_of(('2026-01-01T00:00:00', '', 'x'))}": 422,
}  # fmt: skip


@pytest.fixture
async def api(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Api]:
    """The API of a single shop, whose queue is in partitions, with stored orders and dead letters."""
    async with (
        Scene.open(redis_url, dsn, queue_name) as scene,
        running_api(redis_url, dsn, queue_name, partitions=PARTITIONS, keep_document="on") as api,
    ):
        async with scene.worker(partitions=PARTITIONS, keep_document="on"):
            await Producer(scene.redis, queue_name, partitions=PARTITIONS).enqueue(STORED)
            await scene.stored_at_least(len(STORED))
        for number, order_id in enumerate(DEAD):
            keys = Keys.of(partition_queue(queue_name, number % PARTITIONS, PARTITIONS))
            fields = dead_fields(order_id, ingest_seen_key=order_id)
            entry_id: bytes = await scene.redis.xadd(keys.dead, fields)  # type: ignore[arg-type]
            await scene.redis.hset(keys.dead_seen, order_id, entry_id + b" 8 1700000000000 0")  # type: ignore[misc]
        yield api


async def get(api: Api, path: str) -> tuple[ClientResponse, str]:
    async with api.http.get(URL(f"{api.url}/console{path}", encoded=True)) as response:
        return response, unescape(await response.text())


async def post(api: Api, path: str, page: str, **fields: str) -> tuple[int, str]:
    """Send the form of a page, and return the status and the next page."""
    token = re.search('name="token" value="([^"]*)"', page)
    assert token is not None
    data = {"token": token[1], **fields}
    async with api.http.post(f"{api.url}/console{path}", data=data, headers=SAME_ORIGIN) as response:
        return response.status, unescape(await response.text())


async def test_every_page_of_a_single_shop_in_partitions_is_shown(api: Api) -> None:
    statuses = {path: (await get(api, path))[0].status for path in PATHS}

    assert statuses == dict.fromkeys(PATHS, 200)


async def test_invalid_inputs_are_explained_and_never_a_failure(api: Api) -> None:
    statuses = {path: (await get(api, path))[0].status for path in INVALID}

    assert statuses == INVALID


async def test_dead_letters_of_all_partitions_are_listed_counted_and_replayed_once(api: Api) -> None:
    _, listed = await get(api, "/dead-letters?source=")

    async def counted() -> str | None:
        _, page = await get(api, "/dead-letters/replay?source=")
        return page if f"Replay {len(DEAD)}" in page else None

    page = await eventually(counted)
    assert page is not None
    total, newest = re.search('name="total" value="([0-9]+)"', page), re.search('name="newest" value="({.*})"', page)
    assert total is not None
    assert newest is not None
    status, _ = await post(api, "/dead-letters/replay", page, source="", total=total[1], newest=newest[1])

    async def done() -> bool:
        _, jobs = await get(api, "/jobs")
        return "done" in jobs and f"{len(DEAD)} of {len(DEAD)}" in jobs

    await eventually(done)
    assert all(order_id in listed for order_id in DEAD)
    assert listed.count("seen 8 times, last ") == len(DEAD)
    assert status == 200
    assert "No entry matches." in (await get(api, "/dead-letters?text=gone-"))[1]


async def test_an_export_of_all_partitions_is_started_and_downloaded_once(api: Api) -> None:
    _, page = await get(api, "/dead-letters/export-job?source=")
    status, _ = await post(api, "/dead-letters/export-job", page, source="", format="csv")

    async def is_done() -> bool:
        return "Download the file" in (await get(api, "/jobs/show?id=1"))[1]

    await eventually(is_done)
    response, text = await get(api, "/jobs/output?id=1")
    again, _ = await post(api, "/dead-letters/export-job", page, source="", id=DEAD[0])

    assert (status, response.status, again) == (200, 200, 422)
    assert response.headers["Content-Disposition"] == 'attachment; filename="dead-letters-1.csv"'
    assert sorted(row["order_id"] for row in csv.DictReader(io.StringIO(text))) == sorted(DEAD)


@pytest.mark.parametrize("newest", ['{"orders":"+"}', '{"orders":1}', "+"])
async def test_a_change_without_the_end_of_its_preview_is_not_started(api: Api, newest: str) -> None:
    _, page = await get(api, "/dead-letters/replay?source=")

    status, problem = await post(api, "/dead-letters/replay", page, source="", newest=newest)

    assert (status, "open the preview again" in problem) == (422, True)


async def test_a_form_without_its_token_changes_nothing(api: Api) -> None:
    changes = (
        "/orders/erase",
        "/orders/refetch",
        "/dead-letters/drop",
        "/retries/dead-letter",
        "/sources/pause",
        "/workers/drain",
    )
    for path in changes:
        data = {"source": "", "id": STORED[0], "target": "x", "token": "wrong"}
        async with api.http.post(f"{api.url}/console{path}", data=data, headers=SAME_ORIGIN) as response:
            assert response.status == 403, path

    assert (await get(api, "/orders/show?id=order+1"))[0].status == 200


async def test_a_backfill_is_previewed_started_cancelled_and_resumed(redis_url: str, dsn: str, queue_name: str) -> None:
    listed = '{"url": "http://127.0.0.1:1/orders?since={since}", "next": "page", "size": 10}'
    settings = {"upstream_url": "http://127.0.0.1:1/{order_id}", "order_list": listed, "poll": 60.0}
    async with (
        running_api(redis_url, dsn, queue_name, **settings) as running,
        # A client keeps no cookies of an address by default. One of them contains the message for the next page.
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as http,
    ):
        api = replace(running, http=http)
        _, shown = await get(api, "/sources/backfills")
        _, preview = await get(api, "/sources/backfills/start?since=2026-01-01T00:00&until=2026-02-01T00:00&rate=5")
        assert "There are no backfills." in (await get(api, "/sources/backfills"))[1]
        fields = {"source": "", "since": "2026-01-01T00:00:00", "until": "2026-02-01T00:00:00", "rate": "5.0"}
        status, started = await post(api, "/sources/backfills/start", preview, **fields)
        _, again = await post(api, "/sources/backfills/start", preview, **fields)
        _, cancelled = await post(api, "/jobs/cancel", preview, id="1")
        _, resumed = await post(api, "/jobs/resume", preview, id="1")

    assert "has not been read yet" in shown
    assert status == 200
    assert "waits for a worker process" in started
    assert "is unfinished" in again
    assert "Changes that it has made stay" in cancelled
    assert "Resume the job" in cancelled
    assert "Cancel the job" in resumed


async def test_a_preview_without_a_worker_shows_how_to_start_one_and_can_be_cancelled(api: Api) -> None:
    _, form = await get(api, "/orders/enqueue?prefix=order")

    status, waiting = await post(api, "/orders/preview", form, source="", prefix="order", sample="7")
    _, cancelled = await post(api, "/jobs/cancel", waiting, id="1")
    too_many, _ = await post(api, "/orders/preview", form, source="", prefix="order", sample="101")
    unknown, _ = await post(api, "/orders/preview/refetch", form, id="9")

    assert status == 200
    assert "It waits for a worker of this source" in waiting
    assert "<code>ingest worker</code>" in waiting
    assert "0 fetched of at most 7" in waiting
    assert "Begin again" in cancelled
    assert (too_many, unknown) == (422, 404)


@pytest.mark.parametrize("path", ["/", "/sources", "/sources/show?source="])
async def test_a_lane_whose_entry_ids_are_used_up_is_shown(
    redis_url: str, dsn: str, queue_name: str, path: str
) -> None:
    async with Scene.open(redis_url, dsn, queue_name) as scene, running_api(redis_url, dsn, queue_name) as api:
        await scene.redis.xadd(scene.keys.stream, {"order_id": "a"}, id=f"{2**64 - 1}-{2**64 - 1}")

        response, page = await get(api, path)

    assert response.status == 200
    assert "the main lane has used up its entry IDs, and accepts no orders" in page
    assert "ingest partitions repair" in page
