"""Snapshots of queues and workers on real servers."""

from integration.scene import Scene
from support import eventually

from ingest.operations.backends import Backends
from ingest.operations.snapshot import Snapshot
from ingest.operations.snapshots import Snapshots
from ingest.operations.source_states import Activity, ListedSource


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_snapshot_has_the_outcomes_and_latencies_that_workers_report(scene: Scene) -> None:
    clock = Clock()
    snapshots = _snapshots(scene, clock)

    async def reported() -> bytes | None:
        counts: bytes | None = await scene.redis.get(f"{scene.keys.counts}w")
        return counts

    async def changed() -> bool:
        return await reported() != earlier and await scene.is_finished()

    async with scene.worker():
        await scene.enqueue("first")
        earlier = await eventually(reported)
        before = await snapshots.latest()
        await scene.enqueue(*(f"order-{number}" for number in range(20)))
        await eventually(changed)
        clock.now += 10.0
        after = await snapshots.latest()

    assert (before.rates.stored, before.sources[0].activity) == (None, Activity.RUNNING)
    assert after.rates.stored == after.rates.arrived
    assert 0 < (after.rates.stored or 0) <= 2.0
    assert after.rates.median is not None
    assert after.sources[0].rates.failed_requests == 0


async def test_viewers_share_a_reading_within_a_second_and_nothing_is_read_without_them(scene: Scene) -> None:
    clock = Clock()
    snapshots = _snapshots(scene, clock)

    first = await snapshots.latest()
    clock.now += 0.9
    same = await snapshots.latest()
    clock.now += 0.1
    next_one = await snapshots.latest()

    assert same is first
    assert next_one is not first


async def test_a_viewer_of_some_sources_sees_nothing_of_the_others(scene: Scene) -> None:
    snapshots = Snapshots(scene.redis, [_listed(scene, "one"), _listed(scene, "two")])
    snapshot = await snapshots.latest()

    limited = snapshot.limited_to(lambda source: source == "one")

    assert [each.source for each in limited.sources] == ["one"]
    assert limited.trends == [{"one": snapshot.trends[0]["one"]}]
    assert isinstance(limited, Snapshot)


def _listed(scene: Scene, name: str = "") -> ListedSource:
    return ListedSource(name, Backends(scene.redis_url, scene.dsn, scene.queue, source=name), "quota")


def _snapshots(scene: Scene, clock: Clock) -> Snapshots:
    return Snapshots(scene.redis, [_listed(scene)], clock)
