"""Snapshots of queues and workers on real servers."""

from fakes.set_clock import Clock
from integration.scene import Scene
from support import eventually, logged_in

from ingest.operations.backends import Backends
from ingest.operations.state.snapshot import Snapshot
from ingest.operations.state.snapshots import Snapshots
from ingest.queue.operate.server_memory import ServerMemory
from ingest.store.connections.pool import Pool


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

    assert (before.rates.stored, before.sources[0].condition.reasons) == (None, [])
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
    assert isinstance(limited, Snapshot)


async def test_a_snapshot_names_the_session_that_has_locked_the_table_of_orders(scene: Scene) -> None:
    clock = Clock()
    async with Pool.open(scene.dsn, size=1) as pool, logged_in(scene.dsn) as other:
        snapshots = Snapshots(scene.redis, [_listed(scene)], clock, pool)
        async with other.transaction():
            await other.execute("LOCK TABLE orders")
            locked = await snapshots.latest()
            own = other.get_server_pid()
        clock.now += 10
        free = await snapshots.latest()

    [reason] = [each.reason for each in locked.notices if each.reason.server == "postgres"]
    assert reason.text.startswith(f"the session {own} of the role ")
    assert "has locked the table orders: wait, or end it with `SELECT pg_terminate_backend(" in reason.text
    assert [each.reason.server for each in free.notices] == [""], "only the worker is missing"


async def test_a_snapshot_has_the_memory_of_redis(scene: Scene) -> None:
    memory = (await _snapshots(scene, Clock()).latest()).servers.memory

    assert memory is not None
    assert memory.used > 100_000
    assert [ServerMemory(used, 100).is_nearly_full for used in (90, 91, 100)] == [False, True, True]
    assert [ServerMemory(used, 100).is_full for used in (91, 100)] == [False, True]
    assert not ServerMemory(100, 0).is_full


async def test_a_process_that_is_stuck_and_was_removed_from_the_group_is_remembered(scene: Scene) -> None:
    clock = Clock()
    snapshots = _snapshots(scene, clock)

    async def running() -> Snapshot | None:
        clock.now += 1
        snapshot = await snapshots.latest()
        return snapshot if snapshot.workers else None

    async with scene.worker():
        seen = await eventually(running)
    # As another process does when it has taken its entries.
    await scene.redis.zrem(scene.keys.alive, seen.sources[0].consumers[0].name)
    for stream in (scene.keys.stream, scene.keys.express):
        await scene.redis.xgroup_delconsumer(stream, "ingest", seen.sources[0].consumers[0].name)
    clock.now += 5
    left = await snapshots.latest()
    clock.now += 600
    forgotten = await snapshots.latest()

    [process] = seen.sources[0].consumers
    assert [(each.name, each.state, each.stale_for) for each in left.sources[0].gone] == [(process.name, "stale", 5)]
    assert [list(each.sources[0].gone) for each in (seen, forgotten)] == [[], []]


def _listed(scene: Scene, name: str = "") -> Backends:
    return Backends(scene.redis_url, scene.dsn, scene.queue, source=name)


def _snapshots(scene: Scene, clock: Clock) -> Snapshots:
    return Snapshots(scene.redis, [_listed(scene)], clock)
