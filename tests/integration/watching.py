"""What tests of outages look at while one lasts."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from integration.scene import RunningWorker, Scene, assert_right
from support import eventually

CODES = ("2xx", "3xx", "4xx", "429", "5xx", "timeout", "error")


def requests(worker: RunningWorker) -> float:
    """How many requests of the worker have ended."""
    return sum(worker.metric("ingest_upstream_request_seconds_count", code=code) for code in CODES)


def is_open(worker: RunningWorker) -> bool:
    return worker.metric("ingest_circuit_open") == 1


async def until(condition: Callable[[], bool], within: float = 15.0) -> None:
    """Wait for something that can be seen without asking a server."""

    await eventually(condition, within=within)


async def throughout(seconds: float, look: Callable[[], Awaitable[None]]) -> None:
    """Look again and again, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await look()
        await asyncio.sleep(0.02)


async def nothing_is_blamed(scene: Scene) -> None:
    """No order waits for a second attempt, none is dead-lettered, and no delivery counts that did not get anywhere."""
    assert await scene.redis.zcard(scene.keys.retry) == 0
    assert await scene.dead() == []
    assert max((entry.deliveries for entry in await scene.pending()), default=0) <= 1


async def all_stored_at_the_first_attempt(scene: Scene, order_ids: list[str]) -> None:
    await scene.finished(within=90)
    assert await scene.dead() == []
    rows = await scene.rows()
    assert_right(rows, order_ids)
    assert {row["attempts"] for row in rows.values()} == {1}
