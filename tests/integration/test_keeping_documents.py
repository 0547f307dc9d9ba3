"""The raw document is kept with the row, fetched or pushed, and an order is stored whatever its document holds."""

import json
from typing import Any

from integration.scene import Scene, document


async def documents(scene: Scene) -> dict[str, Any]:
    rows = await scene.rows()
    return {order_id: row["document"] and json.loads(row["document"]) for order_id, row in rows.items()}


async def test_documents_are_kept_where_the_setting_is_on(scene: Scene) -> None:
    scene.api.put_order("fetched", document("fetched"))
    await scene.enqueue("fetched")
    await scene.add(order_id="pushed", document=document("pushed"))

    async with scene.worker(keep_document="on"):
        await scene.finished()

    assert await documents(scene) == {name: json.loads(document(name)) for name in ("fetched", "pushed")}


async def test_documents_are_not_kept_otherwise(scene: Scene) -> None:
    await scene.add(order_id="pushed", document=document("pushed"))

    async with scene.worker():
        await scene.finished()

    assert await documents(scene) == {"pushed": None}


async def test_each_order_of_a_document_gets_it(scene: Scene) -> None:
    await scene.add(order_id="split-1", document=document("split-1"))

    async with scene.worker(keep_document="on", transform="own_code:hostile"):
        await scene.finished()

    assert await documents(scene) == dict.fromkeys(("split-1", "split-1-2"), json.loads(document("split-1")))


async def test_an_order_whose_document_cannot_be_kept_is_stored_without_it(scene: Scene) -> None:
    for number, value in enumerate([b'"\xff"', b"1e999", b"1e-99999", b"1" * 5_000]):
        body = document(f"odd-{number}").removesuffix(b"}") + b',"unknown":' + value + b"}"
        await scene.add(order_id=f"odd-{number}", document=body)
    await scene.add(order_id="good", document=document("good"))

    async with scene.worker(keep_document="on") as worker:
        await scene.finished()

        assert worker.metric("ingest_documents_not_kept_total") == 4
    kept = await documents(scene)
    assert await scene.dead() == []
    assert len(kept) == 5
    assert [order_id for order_id, found in kept.items() if found is not None] == ["good"]


async def test_orders_that_together_are_too_many_for_their_document_are_stored_without_it(scene: Scene) -> None:
    large = document("shatter-1").removesuffix(b"}") + b',"note":"' + b"x" * 1_000_000 + b'"}'
    await scene.add(order_id="shatter-1", document=large)
    await scene.add(order_id="order-1", document=large.replace(b"shatter-1", b"order-1"))

    async with scene.worker(keep_document="on", transform="own_code:hostile") as worker:
        await scene.finished()

        assert worker.metric("ingest_documents_not_kept_total") == 1
    kept = await documents(scene)
    assert len(kept) == 1_001
    assert [order_id for order_id, found in kept.items() if found is not None] == ["order-1"]
