"""Characters that PostgreSQL cannot store are replaced in their text, in whatever way an order comes."""

import pytest
from http_api import Key, running_api
from integration.scene import Scene, document, ids

from ingest.client.client import Client
from ingest.domain.deliveries.announcement import Announcement
from ingest.queue.produce.producer import Producer

ODD = {"half": rb'"x\ud83d y"', "half-at-end": rb'"x\ud83c"', "nul": rb'"a\u0000b"', "bytes": b'"\xed\xa0\xbd"'}
MARK = b"\xef\xbb\xbf"


def odd(order_id: str, text: bytes) -> bytes:
    """A document with such a text in an unused field, in a stored field, and in an attribute."""
    body = document(order_id).replace(b'"Norway"', text).removesuffix(b"}")
    return body + b',"unread":' + text + b',"attributes":{"note":' + text + b"}}"


async def assert_stored(scene: Scene, order_ids: list[str]) -> None:
    rows = await scene.rows()
    assert await scene.dead() == []
    assert sorted(rows) == sorted(order_ids)
    for order_id in order_ids:
        assert "\ufffd" in rows[order_id]["country"]
        assert "\ufffd" in rows[order_id]["attributes"]
        assert "\ufffd" in rows[order_id]["document"]


@pytest.mark.parametrize("way", ["single", "bulk"])
@pytest.mark.parametrize("transport", ["native", "aiohttp"])
async def test_in_responses(scene: Scene, way: str, transport: str) -> None:
    for order_id, text in ODD.items():
        scene.api.put_order(order_id, odd(order_id, text))
    bulk = {"upstream_bulk_url": scene.api.list_template} if way == "bulk" else {}
    await scene.enqueue(*ODD)

    async with scene.worker(keep_document="on", upstream_transport=transport, **bulk) as worker:
        await scene.finished()

        assert worker.metric("ingest_texts_replaced_total") >= (1 if way == "bulk" else len(ODD))
    await assert_stored(scene, list(ODD))
    assert {row["attempts"] for row in (await scene.rows()).values()} == {1}


async def test_in_pushed_documents(scene: Scene) -> None:
    pushed = [Announcement(order_id, document=odd(order_id, text)) for order_id, text in ODD.items()]
    await Producer(scene.redis, scene.queue).enqueue(pushed)

    async with scene.worker(keep_document="on") as worker:
        await scene.finished()

        assert worker.metric("ingest_texts_replaced_total") == len(ODD)
    await assert_stored(scene, list(ODD))


async def test_in_documents_that_are_pushed_over_http(scene: Scene) -> None:
    running = running_api(scene.redis_url, scene.dsn, scene.queue, Key("shop"))
    async with running as api, Client.connect(api.url) as client:
        for order_id, text in ODD.items():
            await client.put(order_id, odd(order_id, text))

    async with scene.worker(keep_document="on") as worker:
        await scene.finished()

        assert worker.metric("ingest_texts_replaced_total") == len(ODD)
    await assert_stored(scene, list(ODD))


async def test_a_byte_order_mark_is_skipped_wherever_it_is(scene: Scene) -> None:
    for order_id in ids(2):
        scene.api.put_order(order_id, MARK + document(order_id))
    await scene.enqueue(*ids(2))
    await scene.add(order_id="pushed", document=MARK + document("pushed"))

    async with scene.worker(keep_document="on") as worker:
        await scene.finished()

        assert worker.metric("ingest_texts_replaced_total") == 0
    rows = await scene.rows()
    assert sorted(rows) == [*ids(2), "pushed"]
    assert all(row["document"] for row in rows.values())
