"""One worker process maintains the group for all: which one, and what becomes of it when that one dies or stops."""

from collections.abc import Iterator

import pytest
from acceptance.commands import Workers, closing_workers
from consumers import Consumer
from integration.scene import Scene
from rehearsals.scale.state import hold
from support import Cli, eventually

from ingest.domain.deliveries.delivery import Sweep
from ingest.services.worker_parts import Classes

PARTS = {"sweep", "move_due", "trim"}


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    settings = {"INGEST_UPSTREAM_URL": scene.api.url_template, "INGEST_PROCESSES": "1"}
    with closing_workers(cli, settings) as workers:
        yield workers


async def leader(scene: Scene) -> str:
    """The consumer that leads, or an empty text."""
    return (await scene.redis.hget(scene.keys.maintenance, "leader") or b"").decode()


async def until(scene: Scene) -> float:
    """The time of the queue, in ms, until which it leads."""
    return float(await scene.redis.hget(scene.keys.maintenance, "until") or 0)


async def cursor(scene: Scene) -> int:
    """How far the sweep has come: the time in the ID of an entry."""
    return int((await scene.redis.hget(scene.keys.maintenance, "cursor") or b"0").partition(b"-")[0])


async def a_leader_other_than(scene: Scene, name: str) -> str:
    """Wait until another consumer leads."""

    async def other() -> str:
        found = await leader(scene)
        return found if found != name else ""

    return await eventually(other)


async def hold_many(scene: Scene, count: int) -> None:
    """Let a consumer that lives hold so many entries, no two of the same millisecond."""
    async with scene.redis.pipeline(transaction=False) as pipe:
        for number in range(1, count + 1):
            pipe.xadd(scene.keys.stream, {"order_id": f"held-{number}"}, id=f"{number}-0")
        await pipe.execute()
    await scene.redis.xgroup_create(scene.keys.stream, "ingest", id="0")
    await hold(scene.redis, scene.keys, ["busy"], count)


async def test_of_several_processes_one_does_all_the_maintenance(scene: Scene) -> None:
    done: set[tuple[str, str]] = set()
    sweeps = 0

    class Noted(Consumer):
        async def sweep(self, idle: float) -> Sweep:
            nonlocal sweeps
            sweeps += 1
            done.add((self.name, "sweep"))
            return await super().sweep(idle)

        async def move_due(self, most: int) -> int:
            done.add((self.name, "move_due"))
            return await super().move_due(most)

        async def trim(self, most: int) -> int:
            done.add((self.name, "trim"))
            return await super().trim(most)

    parts = Classes(partition=Noted)
    lease = {"claim_idle": 1, "heartbeat_ttl": 10.0}
    async with (
        scene.worker("one", parts, **lease),
        scene.worker("two", parts, **lease),
        scene.worker("three", parts, **lease),
    ):
        await eventually(lambda: sweeps >= 10)

    assert len({name for name, _ in done}) == 1
    assert {part for _, part in done} == PARTS


async def test_when_the_leader_is_killed_another_goes_on_where_its_sweep_stopped(
    scene: Scene, workers: Workers
) -> None:
    await hold_many(scene, 60_000)
    first = workers.start(heartbeat_ttl=1.0)
    dead = await a_leader_other_than(scene, "")
    workers.start(heartbeat_ttl=1.0)

    async def has_begun() -> bool:
        return await scene.redis.zcard(scene.keys.alive) == 3 and await cursor(scene) > 0

    await eventually(has_begun)
    first.close()
    stopped_at = await cursor(scene)
    led_until = await until(scene)

    async def goes_on() -> int:
        found = await cursor(scene)
        return found if found != stopped_at else 0

    went_on_at = await eventually(goes_on)
    seconds, micros = await scene.redis.time()

    assert 0 < stopped_at < went_on_at
    assert await leader(scene) != dead
    assert seconds * 1000 + micros / 1000 >= led_until
