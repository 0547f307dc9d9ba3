"""An order that is dead already for the same reason gets no second dead letter. Its letter counts how often it was seen."""

from integration.scene import Scene

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.operations.failed_orders.entry_json import shown
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.produce.producer import Producer

EVERYTHING = Selection(everything=True)


async def test_each_reading_of_a_list_adds_to_the_letter_of_an_order_and_not_another_letter(scene: Scene) -> None:
    scene.api.delete_order("lost")
    await scene.enqueue("known")
    dead = PartitionDeadLetters(scene.redis, scene.queue)

    async with scene.worker():
        for _ in range(8):
            # As `poll` does.
            await Producer(scene.redis, scene.queue).try_announce([Announcement("lost", origin="poll")], coalesce=60)
            await scene.finished()
    [letter] = [entry async for page in dead.newest_first(EVERYTHING) for entry in page.entries]
    await dead.change(JobKind.REPLAY, EVERYTHING)
    async with scene.worker():
        await scene.finished()
    [again] = [entry async for page in dead.newest_first(EVERYTHING) for entry in page.entries]

    assert (letter.order_id, letter.reason, shown(letter, "").seen) == ("lost", "not_found", 8)
    assert (again.order_id, again.replays, shown(again, "").seen) == ("lost", 1, 1)
