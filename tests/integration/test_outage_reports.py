"""A worker tells why it fetches nothing; what becomes of that changes nothing for it."""

from integration.scene import RunningWorker, Scene, ids
from support import eventually

from ingest.domain.fetch.outage import Outage
from ingest.queue.consume.consumer import Consumer
from ingest.queue.redis.connection import QueueRefused
from ingest.services.worker_parts import Classes


class Mute(Consumer):
    """Redis refuses its reports."""

    async def report_outage(self, circuit: Outage | None, lifetime: float) -> None:
        del circuit, lifetime
        raise QueueRefused("Redis refuses: NOPERM")


async def test_a_worker_whose_reports_are_refused_goes_through_an_outage_like_any_other(scene: Scene) -> None:
    scene.api.behave(token="right")
    await scene.enqueue(*ids(30))

    async def is_open(worker: RunningWorker) -> bool:
        return worker.metric("ingest_circuit_open") == 1

    async with scene.worker(classes=Classes(consumer=Mute)) as worker:
        await eventually(lambda: is_open(worker))
        scene.api.behave(token=None)
        await scene.stored_at_least(30)

    assert await scene.dead() == []
