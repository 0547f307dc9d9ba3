"""A pause of a source stops every kind of request: first ones, quick retries, probes, canaries, and those for several orders."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from integration.scene import Scene, assert_right, ids
from integration.watching import is_open
from support import eventually

from ingest.domain.operating.controls import Pause
from ingest.queue.operate.controls import ControlRecord

ORDERS = ids(900)
# Longer than a pause takes to reach a worker.
_FOLLOWED = 2.5


class Operator:
    """Pauses and resumes the source of a scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._record = ControlRecord(scene.redis, scene.queue)

    async def pause(self, seconds: float | None = None) -> None:
        now = datetime.now(UTC)
        until = None if seconds is None else now + timedelta(seconds=seconds)
        await self._record.set_pauses({"": Pause(since=now, until=until, by="test")})

    async def resume(self) -> None:
        await self._record.set_pauses({"": None})

    async def requests_after(self, seconds: float) -> int:
        """The requests that begin within a time span in which there must be none, after the pause has reached the worker."""
        await asyncio.sleep(_FOLLOWED)
        before = self._scene.api.stats().requests
        await asyncio.sleep(seconds)
        return self._scene.api.stats().requests - before


@pytest.fixture
def operator(scene: Scene) -> Operator:
    return Operator(scene)


@pytest.mark.parametrize("way", ["quick retries", "several orders"])
async def test_no_request_begins_while_a_source_is_paused_and_all_orders_are_stored_afterwards(
    scene: Scene, operator: Operator, way: str
) -> None:
    several = {"upstream_bulk_url": scene.api.list_template, "upstream_bulk_size": 3}
    changed = several if way == "several orders" else {"upstream_tries": 4}
    scene.api.behave(latency="0.1", **({} if way == "several orders" else {"error_rate": 0.5, "fail_first": 1}))
    await scene.enqueue(*ORDERS)

    async with scene.worker(concurrency=25, **changed):
        await eventually(lambda: scene.api.stats().requests > 10)
        await operator.pause()
        begun = await operator.requests_after(2.0)
        state, rows = await scene.state(), await scene.rows()
        await operator.resume()
        await scene.finished()

    assert begun == 0
    assert len(rows) < len(ORDERS)
    assert (state.retries, state.dead) == (0, 0)
    assert_right(await scene.rows(), ORDERS)
    assert {row["attempts"] for row in (await scene.rows()).values()} == {1}


async def test_an_open_circuit_sends_no_probe_while_the_source_is_paused(scene: Scene, operator: Operator) -> None:
    await scene.enqueue(*ORDERS[:50])
    async with scene.worker() as worker:
        await scene.stored_at_least(50)
        scene.api.behave(down="503")
        await scene.enqueue(*ORDERS[50:100])
        await eventually(lambda: is_open(worker))

        await operator.pause()
        probes = await operator.requests_after(4.0)
        scene.api.behave(down=None)
        await operator.resume()
        await scene.finished()

    assert probes == 0
    assert_right(await scene.rows(), ORDERS[:100])


async def test_a_pause_with_an_end_ends_by_itself(scene: Scene, operator: Operator) -> None:
    scene.api.behave(latency="0.1")
    async with scene.worker(concurrency=20):
        await operator.pause(seconds=4.0)
        await asyncio.sleep(_FOLLOWED)
        await scene.enqueue(*ORDERS[:40])
        sent = scene.api.stats().requests
        await scene.finished()

    assert sent == 0
    assert_right(await scene.rows(), ORDERS[:40])
