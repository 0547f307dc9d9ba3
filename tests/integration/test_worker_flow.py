"""Deliveries in a worker that is assembled from its real parts on real servers."""

import asyncio
import itertools
from typing import Any

import pytest
from integration.scene import Scene, assert_right, document, ids
from redelivery import delivered, refs

# -- held deliveries ---------------------------------------------------------------------------


async def test_a_cancelled_call_of_the_queue_is_cancelled_at_whatever_moment(scene: Scene) -> None:
    calls: dict[str, tuple[Any, ...]] = {
        "read": (5, 0.05),
        "claim_own": (5, []),
        "sweep": (1.0,),
        "move_due": (5,),
        "renew": (refs(scene.keys, ["1-1"]),),
        "ack": (refs(scene.keys, ["1-1"]),),
        "release": (delivered(scene.keys, ["1-1"]),),
        "heartbeat": (1.0,),
        "claim_abandoned": (5,),
        "leave": (),
        "ensure_group": (),
    }
    for turns, (call, arguments) in itertools.product(range(1, 12), calls.items()):
        async with scene.consumer("w") as consumer:
            calling = asyncio.create_task(getattr(consumer, call)(*arguments))
            for _ in range(turns):
                await asyncio.sleep(0)
            was_asked = calling.cancel()
            await asyncio.wait([calling])
        assert calling.cancelled() == was_asked, f"{call}, after {turns} turns of the event loop"


async def test_a_cancelled_worker_drops_everything_at_whatever_moment(scene: Scene) -> None:
    await scene.enqueue(*ids(20))

    for turns in range(0, 120, 3):
        # Each of them may be handed all of it again: that many deliveries are no poison here.
        async with scene.worker("slot", max_deliveries=1_000) as worker:
            for _ in range(turns):
                await asyncio.sleep(0)
            await worker.die()

    async with scene.worker("slot", max_deliveries=1_000):
        await scene.finished()
    assert_right(await scene.rows(), ids(20))


async def test_a_worker_stops_at_whatever_moment_it_is_asked(scene: Scene) -> None:
    await scene.enqueue(*ids(40))

    for turns in range(0, 120, 8):
        async with scene.worker(f"worker-{turns}", concurrency=1) as worker:
            for _ in range(turns):
                await asyncio.sleep(0)
            await worker.stop()

    state = await scene.state()
    assert (state.pending, state.consumers) == (0, 0)
    assert await scene.stored() + (state.depth or 0) == 40


# -- faults -------------------------------------------------------------------------------------


async def test_a_transient_fault_goes_to_the_retry_set_and_ends_stored(scene: Scene) -> None:
    scene.api.behave(error_rate=0.5, fail_first=1)
    await scene.enqueue(*ids(10))

    async with scene.worker() as worker:
        await scene.finished()

        retried = worker.metric("ingest_orders_total", outcome="retried")
        assert worker.metric("ingest_orders_total", outcome="stored") == 10
    asked = scene.api.stats().by_id
    rows = await scene.rows()
    assert_right(rows, ids(10))
    assert 0 < retried < 10
    attempts = {order_id: row["attempts"] for order_id, row in rows.items()}
    assert sum(attempts.values()) == 10 + retried
    # An order that has arrived may be requested again, to see whether the external API works.
    assert all(attempts[order_id] <= times for order_id, times in asked.items())
    assert sum(asked.values()) - sum(attempts.values()) <= retried


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (404, "not_found"),
        (410, "not_found"),
        (422, "rejected"),
        (b"{" + document("X"), "invalid_order"),
        (b'["no order"]', "invalid_order"),
        (document("X") + b" " * 2_000_000, "invalid_order"),
    ],
    ids=str,
)
async def test_an_order_at_fault_is_a_dead_letter_at_once_and_stops_no_other(
    scene: Scene, sent: int | bytes, reason: str
) -> None:
    if isinstance(sent, bytes):
        scene.api.put_order("X", sent)
    else:
        scene.api.behave(breaking_id="X", error_status=sent)
    async with scene.worker(upstream_body_limit=1_000_000):
        await scene.enqueue("known")
        await scene.finished()
        await scene.enqueue("X")
        await scene.add(order_id="pushed", document=document("pushed"))
        await scene.finished()

    (letter,) = await scene.dead()
    assert (letter["order_id"], letter["reason"], letter["attempts"]) == ("X", reason, "1")
    assert letter["error"]
    assert scene.api.stats().by_id["X"] == 2, "it is requested once more before"
    assert_right(await scene.rows(), ["known", "pushed"])


async def test_an_entry_whose_id_is_beyond_all_dates_is_stored_and_so_are_those_behind_it(scene: Scene) -> None:
    # Each entry that is added after it gets the same time in its ID.
    await scene.redis.xadd(scene.keys.stream, {"order_id": "X"}, id="99999999999999999-0")
    await scene.enqueue("Y")
    await scene.add(order_id="Z", document=document("Z"))

    async with scene.worker():
        await scene.finished()

    assert await scene.dead() == []
    assert sorted(await scene.rows()) == ["X", "Y", "Z"]


# -- stored orders -------------------------------------------------------------------------------------------


OLD = document("X", status="placed", updated_at="2026-01-01T00:00:00Z")
NEW = document("X", status="shipped", updated_at="2026-01-02T00:00:00Z")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", [OLD, NEW])
async def test_an_older_version_never_replaces_a_newer_one(scene: Scene, first: bytes, together: bool) -> None:  # noqa: FBT001
    second = NEW if first is OLD else OLD
    await scene.add(order_id="X", document=first)
    if together:
        await scene.add(order_id="X", document=second)

    async with scene.worker():
        await scene.finished()
        if not together:
            await scene.add(order_id="X", document=second)
            await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ["X"])
    assert rows["X"]["status"] == "shipped"
