"""The history of the last hours on real servers, as workers and processes with a console write it."""

import time

from integration.scene import Scene
from support import eventually

from ingest.operations.backends import Backends
from ingest.operations.state.history import Bar, History, total_of
from ingest.operations.state.snapshots import Snapshots


def _history(scene: Scene, at: float | None = None) -> History:
    listed = [Backends(scene.redis_url, scene.dsn, scene.queue)]
    return History(scene.redis, listed, Snapshots(scene.redis, listed), time.time if at is None else lambda: at)


async def _total(scene: Scene, hours: int = 1) -> Bar:
    # A minute may have ended since the last look.
    history = _history(scene)
    await history.note()
    snapshot = await Snapshots(scene.redis, [Backends(scene.redis_url, scene.dsn, scene.queue)]).latest()
    return Bar.total(total_of((await history.bars(snapshot, hours)).values()))


async def test_arrived_stored_and_failed_orders_of_the_last_hour_are_counted(scene: Scene) -> None:
    await _history(scene).note()

    async def counted() -> Bar | None:
        found = await _total(scene)
        return found if (found.stored, found.failed) == (20, 1) else None

    async with scene.worker():
        await scene.enqueue(*(f"order-{number}" for number in range(20)))
        await scene.add(unknown="field")
        found = await eventually(counted)

    assert found == Bar(arrived=21, stored=20, failed=1, oldest=0)
    assert await _total(scene, 24) == found


async def test_a_worker_adds_its_last_orders_when_it_stops(scene: Scene) -> None:
    async with scene.worker() as worker:
        await scene.enqueue("first", "second")
        await scene.stored_at_least(2)
        await worker.stop()

        assert (await _total(scene)).stored == 2


async def test_waiting_orders_are_counted_without_a_worker_and_an_unobserved_time_is_unknown(scene: Scene) -> None:
    now = 60.0 * (time.time() // 60) + 30
    await _history(scene, now - 20 * 60).note()
    await _history(scene, now - 60).note()
    await scene.enqueue("first", "second")
    await _history(scene, now).note()

    history = _history(scene, now)
    snapshot = await Snapshots(scene.redis, [Backends(scene.redis_url, scene.dsn, scene.queue)]).latest()
    [bars] = (await history.bars(snapshot, 1)).values()

    assert [(at, bar.arrived) for at, bar in enumerate(bars) if bar.arrived is not None] == [(58, 2), (59, 0)]
    assert [at for at, bar in enumerate(bars) if bar.stored is not None] == [38, 57, 58, 59]


async def test_the_history_of_a_source_needs_few_keys_that_expire(scene: Scene) -> None:
    for minute in range(0, 180, 7):
        await _history(scene, time.time() - 60 * minute).note()

    keys = [key async for key in scene.redis.scan_iter(f"{scene.keys.minutes}*")]

    assert len(keys) <= 4
    for key in keys:
        assert 24 * 3600 < await scene.redis.ttl(key) <= 25 * 3600
        assert await scene.redis.object("ENCODING", key) == b"listpack"
