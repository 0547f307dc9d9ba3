"""IDs such as `SO/2026/12`, `#1001` and `a  b` on every way in and out of the queue and the database, on real servers."""

import json
import posixpath
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
import pytest
import webhook_requests as made
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from http_api import Api, Key, queued, running_api
from integration.scene import Scene, document
from odd_ids import NO_IDS, ODD_IDS

from ingest.client.client import Client
from ingest.client.errors import NotFound
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.operate.erasing import PartitionEraser, Removed
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.order_search import PartitionSearch
from ingest.queue.produce.producer import Producer

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, Key("shop")) as api:
        yield api


async def queued_in(scene: Scene, lane: str = "stream") -> list[str]:
    return [fields[b"order_id"].decode() for fields in await queued(scene.redis, scene.queue, lane)]


# -- the queue ----------------------------------------------------------------------------------------------------


async def test_an_order_keeps_its_id_through_retries_dead_letters_and_replays(scene: Scene) -> None:
    await Producer(scene.redis, scene.queue).enqueue(ODD_IDS)

    async with scene.consumer("w") as consumer:
        for delivery in await consumer.read(100, 1.0):
            assert await consumer.reschedule(delivery, 0.0, 2)
        assert await consumer.move_due(100) == len(ODD_IDS)
        for delivery in await consumer.read(100, 1.0):
            assert await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")
        dead_letters = PartitionDeadLetters(scene.redis, scene.queue)
        replayed = await dead_letters.change(JobKind.REPLAY, Selection(frozenset(ODD_IDS)))
        again = [delivery.order_id for delivery in await consumer.read(100, 1.0)]

    assert replayed.done == len(ODD_IDS)
    assert sorted(map(str, again)) == sorted(ODD_IDS)


async def test_an_order_that_waits_is_not_queued_again_and_a_key_is_accepted_once(scene: Scene) -> None:
    producer = Producer(scene.redis, scene.queue)
    await producer.try_announce(ODD_IDS, coalesce=60)
    await producer.try_announce([Announcement(order_id, origin="shop") for order_id in ODD_IDS], coalesce=60)
    await producer.enqueue(ODD_IDS, idempotency_key="k", express=True)
    await producer.enqueue(ODD_IDS, idempotency_key="k", express=True)

    assert await queued_in(scene) == [*ODD_IDS]
    assert await queued_in(scene, "express") == [*ODD_IDS]


async def test_an_order_is_found_and_erased_wherever_it_waits(scene: Scene) -> None:
    await scene.enqueue(*ODD_IDS)
    async with scene.consumer("w") as consumer:
        for delivery in await consumer.read(100, 1.0):
            await consumer.reschedule(delivery, 3_600.0, 2)
        await scene.enqueue(*ODD_IDS)
        for delivery in await consumer.read(100, 1.0):
            await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")

    found = await PartitionSearch(scene.redis, scene.queue, "ingest").find(ODD_IDS)
    erased = await PartitionEraser(scene.redis, scene.queue, "ingest").erase(ODD_IDS)

    assert {order_id: len(entries) for order_id, entries in found.entries.items()} == dict.fromkeys(ODD_IDS, 2)
    assert erased == dict.fromkeys(ODD_IDS, Removed(retries=1, dead_letters=1))
    assert (await scene.dead(), await scene.redis.hlen(scene.keys.retry_entries)) == ([], 0)


# -- the external API ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["native", "aiohttp"])
@pytest.mark.parametrize("way", ["one by one", "by POST", "together"])
async def test_an_order_is_fetched_and_stored_under_its_id(scene: Scene, way: str, transport: str) -> None:
    changed = {
        "one by one": {},
        "by POST": {
            "upstream_url": f"{scene.api.base_url}/orders",
            "upstream_method": "POST",
            "upstream_body": '{"id": "{order_id}"}',
        },
        "together": {"upstream_bulk_url": scene.api.list_template, "upstream_bulk_size": 10},
    }[way]
    await scene.enqueue(*ODD_IDS)

    async with scene.worker(upstream_client=transport, **changed):
        await scene.finished()

    rows = await scene.rows()
    # A list endpoint takes an ID with a comma for two, and the order that it leaves out is requested alone.
    assert sorted(rows) == sorted(set(ODD_IDS))
    assert await scene.dead() == []


async def test_a_server_that_normalizes_paths_receives_requests_for_orders_only(scene: Scene) -> None:
    paths: list[str] = []

    async def normalize(request: web.BaseRequest) -> web.Response:
        # Like nginx: decodes the path once, then resolves the dot segments.
        paths.append(posixpath.normpath(unquote(request.rel_url.raw_path).replace("\\", "/")))
        order_id = unquote(request.rel_url.raw_path.removeprefix("/internal/orders/"))
        return web.Response(body=document(order_id), content_type="application/json")

    order_ids = {*ODD_IDS, *(text for text in NO_IDS if text.isprintable())}
    for order_id in order_ids:
        await scene.add(order_id=order_id)

    async with (
        RawTestServer(normalize) as shop,
        scene.worker(upstream_url=f"{shop.make_url('/internal/orders')}/{{order_id}}"),
    ):
        await scene.finished()

    assert [path for path in paths if not path.startswith("/internal/orders/")] == []
    assert sorted(await scene.rows()) == sorted(ODD_IDS)
    assert {letter["order_id"]: letter["reason"] for letter in await scene.dead()} == dict.fromkeys(
        order_ids - {*ODD_IDS}, "invalid_message"
    )


# -- HTTP ---------------------------------------------------------------------------------------------------------


async def test_the_client_announces_pushes_finds_and_erases_an_order(scene: Scene, api: Api) -> None:
    count = len(ODD_IDS)
    async with Client.connect(api.url) as client:
        assert await client.announce(ODD_IDS) == Accepted(count, 0)
        assert await client.announce_stream(ODD_IDS) == Accepted(count, 0)
        for order_id in ODD_IDS:
            await client.put(order_id, document(order_id))
        async with scene.worker():
            await scene.finished()
        found = {order_id: await client.get(order_id) for order_id in ODD_IDS}
        listed = [order["order"]["id"] async for order in client.orders(limit=3)]
        for order_id in ODD_IDS:
            await client.erase(order_id)
        with pytest.raises(NotFound):
            await client.get("another/one")

    assert {order_id: (each.order_id, each.state) for order_id, each in found.items()} == {
        order_id: (order_id, "stored") for order_id in ODD_IDS
    }
    assert listed == sorted(ODD_IDS)
    assert await scene.stored() == 0


async def test_a_path_names_one_order_however_it_is_encoded(scene: Scene, api: Api) -> None:
    await scene.enqueue("SO/2026/12", "a b", "é", "{x}", "%2F")

    assert [
        (await api.get(f"/v1/orders/{path}"))[1].get("order_id")
        for path in ("SO%2F2026%2f12", "a%20b", "%C3%A9", "{x}", "%7Bx%7d", "%252F", "%61%20b")
    ] == ["SO/2026/12", "a b", "é", "{x}", "{x}", "%2F", "a b"]
    assert (await api.get("/v1/orders/SO/2026/12"))[0] == 404


async def test_operators_select_orders_by_their_ids(scene: Scene, api: Api) -> None:
    await scene.enqueue(*ODD_IDS)
    async with scene.consumer("w") as consumer:
        for delivery in await consumer.read(100, 1.0):
            await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")

    found = [(await api.get(f"/v1/dead-letters?id={quote(each, safe='')}"))[1]["dead_letters"] for each in ODD_IDS]
    status, replayed = await api.post("/v1/dead-letters/replay", json={"ids": [*ODD_IDS]})

    assert [[letter["order_id"] for letter in letters] for letters in found] == [[each] for each in ODD_IDS]
    assert (status, replayed["count"]) == (200, len(ODD_IDS))


async def test_retries_are_listed_page_by_page_even_if_two_orders_had_one_entry_id(scene: Scene, api: Api) -> None:
    longest = "\u00e9" * 127
    await scene.enqueue(longest)
    async with scene.consumer("w") as consumer:
        (delivery,) = await consumer.read(1, 1.0)
        # A server whose clock was set back gave the ID of the entry to another order before.
        other = msgspec.msgpack.encode(["order_id", "other"])
        await scene.redis.hset(scene.keys.retry_entries, delivery.entry.id, other)
        await scene.redis.zadd(scene.keys.retry, {delivery.entry.id: 10**15})
        await consumer.reschedule(delivery, 3_600.0, 2)

    pages = await api.pages("/v1/retries?limit=1", "retries")
    status, moved = await api.post("/v1/retries/dead-letter", json={"ids": [longest]})

    assert [[retry["order_id"] for retry in page] for page in pages if page] == [[longest], ["other"]]
    assert (status, moved["count"]) == (200, 1)
    assert [letter["order_id"] for letter in await scene.dead()] == [longest]


@pytest.mark.parametrize("text", [text for text in NO_IDS if text.isprintable() or ord(max(text)) < 0xD800])
async def test_a_text_that_is_no_id_is_refused_on_every_route(scene: Scene, api: Api, text: str) -> None:
    path = f"/v1/orders/{quote(text, safe='')}"
    asked = [
        await api.post("/v1/orders", json={"order_ids": [text]}),
        await api.post("/v1/orders", data=json.dumps(text), headers=NDJSON),
        await api.post("/v1/orders", data=json.dumps({"order_id": text}), headers=NDJSON),
    ]
    if text:
        asked += [await api.get(path), await api.call("DELETE", path)]

    assert {(status, answer["code"]) for status, answer in asked} <= {(422, "invalid_order_id"), (422, "invalid_line")}
    assert await queued_in(scene) == []


async def test_a_line_of_text_is_an_id_unless_it_begins_like_json(scene: Scene, api: Api) -> None:
    plain = [order_id for order_id in ODD_IDS if order_id[0] not in '"{[' and order_id not in {"null", "1e3", "-1001"}]

    status, answer = await api.post("/v1/orders", data="\r\n".join(plain).encode(), headers=NDJSON)

    assert (status, answer["accepted"]) == (202, len(plain))
    assert await queued_in(scene) == plain


async def test_webhooks_announce_an_order_by_its_id(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(made.SECRET)
    file = tmp_path / "webhooks.toml"
    file.write_text('[sources.shop]\nprofile = "shopify"\nsecret_files = ["secret"]\norder_id = "name"\n')
    async with running_api(scene.redis_url, scene.dsn, scene.queue, webhooks=str(file)) as api:
        for number, order_id in enumerate(ODD_IDS):
            body = json.dumps({"name": order_id}).encode()
            headers = made.shopify(body, webhook_id=f"w-{number}")
            status, answer = await api.post("/v1/webhooks/shop", data=body, headers=headers)
            assert (status, answer["result"]) == (200, "accepted"), order_id

    assert await queued_in(scene) == [*ODD_IDS]
