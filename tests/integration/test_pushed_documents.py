"""Orders that are pushed with their entry: of several for one order the one announced last wins, whenever each is handled."""

from datetime import UTC, datetime, timedelta

import pytest
from integration.scene import GROUP, Scene, document
from support import eventually

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.produce.producer import Producer


async def now_ms(scene: Scene) -> int:
    seconds, micros = await scene.redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def test_a_push_that_is_redelivered_after_a_later_one_does_not_replace_it(scene: Scene) -> None:
    first = await scene.add(order_id="X", document=document("X", status="first"))
    async with scene.consumer("gone") as gone:
        assert [delivery.entry.id for delivery in await gone.read(1, 1.0)] == [first]
    await scene.add(order_id="X", document=document("X", status="second"))
    async with scene.worker("quick"):

        async def is_acked() -> bool:
            return [entry.entry_id for entry in await scene.pending()] == [first]

        await eventually(is_acked)
        await scene.stored_at_least(1)

    await scene.redis.xclaim(scene.keys.stream, GROUP, "late", 0, [first])
    async with scene.worker("late"):
        await scene.finished()

    assert (await scene.rows())["X"]["status"] == "second"


async def test_a_push_that_was_dead_and_is_replayed_does_not_replace_a_later_one(scene: Scene) -> None:
    await scene.sql("ALTER TABLE orders ADD CONSTRAINT no_first CHECK (status <> 'first')")
    await scene.add(order_id="X", document=document("X", status="first"))
    await scene.add(order_id="Y", document=document("Y"))
    async with scene.worker():
        await scene.finished()
        assert [letter["order_id"] for letter in await scene.dead()] == ["X"]
        await scene.sql("ALTER TABLE orders DROP CONSTRAINT no_first")
        await scene.add(order_id="X", document=document("X", status="second"))
        await scene.finished()

        await PartitionDeadLetters(scene.redis, scene.queue).change(JobKind.REPLAY, Selection(everything=True))
        await scene.finished()

    assert (await scene.rows())["X"]["status"] == "second"


async def test_pushes_in_one_millisecond_are_told_apart_by_their_order(scene: Scene) -> None:
    at = await now_ms(scene)
    for number in range(3):
        await scene.redis.xadd(
            scene.keys.stream,
            {"order_id": "X", "document": document("X", status=f"push {number}")},
            id=f"{at}-{number}",
        )

    async with scene.consumer("gone") as gone:
        await gone.read(2, 1.0)
    async with scene.worker("quick"):
        await scene.stored_at_least(1)
    await scene.redis.xclaim(scene.keys.stream, GROUP, "late", 0, [f"{at}-0", f"{at}-1"])
    async with scene.worker("late"):
        await scene.finished()

    row = (await scene.rows())["X"]
    assert row["status"] == "push 2"
    assert row["version"] == datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at, microseconds=2)


async def test_a_fetch_that_was_asked_for_after_a_push_replaces_it_even_if_the_push_is_handled_later(
    scene: Scene,
) -> None:
    scene.api.put_order("X", document("X", status="fetched"))
    pushed = await scene.add(order_id="X", document=document("X", status="pushed"))
    async with scene.consumer("gone") as gone:
        await gone.read(1, 1.0)
    await scene.enqueue("X")
    async with scene.worker("quick"):
        await scene.stored_at_least(1)

    await scene.redis.xclaim(scene.keys.stream, GROUP, "late", 0, [pushed])
    async with scene.worker("late"):
        await scene.finished()

    assert (await scene.rows())["X"]["status"] == "fetched"


async def test_of_two_pushes_with_one_version_the_later_event_wins_in_whatever_order_they_arrive(scene: Scene) -> None:
    version, now = "2026-01-02T03:04:05Z", datetime.now(UTC)
    producer = Producer(scene.redis, scene.queue)

    def pushed(status: str, age: float, updated_at: str | None = version, order_id: str = "X") -> Announcement:
        content = document(order_id, status=status, updated_at=updated_at)
        return Announcement(order_id, content, event_at=now - timedelta(seconds=age))

    async with scene.worker():
        for announcement in (
            pushed("later", 1.2),
            pushed("earlier", 1.4),
            # A clock that is ahead does not decide. Both events then count as accepted one after the other.
            pushed("ahead", -3600, order_id="Y"),
            pushed("second", -7200, order_id="Y"),
            # Without a version, the document that was accepted last wins.
            pushed("first", 1.2, updated_at=None, order_id="Z"),
            pushed("second", 1.4, updated_at=None, order_id="Z"),
        ):
            await producer.enqueue(announcement)
            await scene.finished()

    assert {name: row["status"] for name, row in (await scene.rows()).items()} == {
        "X": "later",
        "Y": "second",
        "Z": "second",
    }


@pytest.mark.parametrize("unit", [1_000, 1_000_000], ids=["microseconds", "nanoseconds"])
async def test_entries_whose_ids_another_program_counts_in_smaller_units_are_stored_and_can_be_read(
    scene: Scene, unit: int
) -> None:
    entry_id = f"{await now_ms(scene) * unit}-0"
    await scene.redis.xadd(scene.keys.stream, {"order_id": "X", "document": document("X")}, id=entry_id)
    # Redis never generates a smaller ID.
    await scene.add(order_id="Y", document=document("Y"))

    async with scene.worker():
        await scene.finished()

    assert set(await scene.rows()) == {"X", "Y"}
