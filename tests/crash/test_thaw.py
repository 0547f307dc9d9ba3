"""A worker that thaws after others have reclaimed its entries does no harm."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from acceptance.commands import WorkerCommand
from integration.scene import RunningWorker, Scene, assert_right, document, ids, unguarded
from support import eventually, start_program

FROZEN = Path(__file__).with_name("frozen.py")
ORDERS = ids(8)
Start = Callable[[str], WorkerCommand]


@pytest.fixture
def start(scene: Scene, env: dict[str, str]) -> Iterator[Start]:
    """Starts a worker that freezes at a moment, and kills it at the end of the test."""
    commands: list[WorkerCommand] = []

    def start(moment: str) -> WorkerCommand:
        changed = {
            "upstream_url": scene.api.url_template,
            "upstream_tries": "1",
            "concurrency": str(len(ORDERS)),
            "heartbeat_ttl": "1",
            "claim_idle": "3600",
        }
        own = {f"INGEST_{name.upper()}": str(value) for name, value in changed.items()}
        commands.append(WorkerCommand(start_program(FROZEN, moment, "frozen", env={**env, **own})))
        return commands[-1]

    yield start
    for command in commands:
        command.close()
        command.process.communicate()


def serve(scene: Scene, status: str) -> None:
    """Set the external API's document for all orders, which does not contain a version."""
    for order_id in ORDERS:
        scene.api.put_order(order_id, document(order_id, status=status))


async def has_frozen(command: WorkerCommand) -> None:
    async def stopped() -> bool:
        assert command.process.poll() is None, command.log
        return bool(psutil.Process(command.process.pid).status() == psutil.STATUS_STOPPED)

    await eventually(stopped)


async def has_taken_over(heir: RunningWorker, count: int) -> None:
    await eventually(lambda: heir.metric("ingest_redeliveries_total", reason="dead_consumer") == count)


async def goes_on(scene: Scene, thawed: WorkerCommand) -> None:
    """The thawed worker works normally: it stores the next orders without help, and stops on request."""
    await scene.enqueue("next")
    await scene.finished()
    assert "next" in await scene.rows()
    assert await thawed.stop() == 0
    assert not [event for event in thawed.log if event.get("level") == "error"], thawed.log


@pytest.mark.parametrize("moment", ["after_fetch", "after_commit"])
async def test_a_thawed_worker_whose_orders_others_hold_lets_go_of_them(
    scene: Scene, start: Start, moment: str
) -> None:
    serve(scene, "placed")
    await scene.enqueue(*ORDERS)
    frozen = start(moment)
    await has_frozen(frozen)
    pending = len(await scene.pending())
    before = await scene.rows()
    serve(scene, "shipped")
    # Long enough for the frozen worker to thaw and continue while the other worker holds the orders.
    scene.api.behave(latency="4")

    async with scene.worker("heir", claim_idle=3600) as heir:
        await has_taken_over(heir, pending)
        frozen.process.send_signal(signal.SIGCONT)

        await eventually(lambda: len(frozen.events("lease_lost")) == pending, within=3)
        assert {entry.consumer for entry in await scene.pending()} == {"heir"}, "nothing is acked"
        assert await scene.rows() == before, "nothing is stored"
        await scene.finished()
        rows = await scene.rows()
        assert heir.metric("ingest_orders_total", outcome="stored") == pending
    assert_right(rows, ORDERS)
    assert {row["status"] for row in rows.values()} == {"shipped"}
    scene.api.behave(latency="0")
    await goes_on(scene, frozen)


@pytest.mark.parametrize("moment", ["after_read", "after_fetch", "before_commit", "after_commit", "before_ack"])
async def test_a_thawed_worker_overwrites_nothing_that_others_have_stored_meanwhile(
    scene: Scene, start: Start, moment: str
) -> None:
    serve(scene, "placed")
    await scene.enqueue(*ORDERS)
    frozen = start(moment)
    await has_frozen(frozen)
    serve(scene, "shipped")
    async with scene.worker("heir", claim_idle=3600):
        await scene.finished()
    before = await scene.rows()
    assert {row["status"] for row in before.values() if row["order_id"] in ORDERS} == {"shipped"}

    frozen.process.send_signal(signal.SIGCONT)
    await goes_on(scene, frozen)

    after = await scene.rows()
    del after["next"]
    if moment == "after_read":
        # It requests its orders only now, and gets newer documents with the same content.
        assert unguarded(after) == unguarded(before)
    else:
        assert after == before
    assert await scene.dead() == []


async def test_what_a_frozen_worker_held_and_others_finished_is_announced_again_and_not_lost(
    scene: Scene, start: Start
) -> None:
    serve(scene, "placed")
    await scene.enqueue(*ORDERS)
    frozen = start("after_fetch")
    await has_frozen(frozen)
    async with scene.worker("heir", claim_idle=3600):
        await scene.finished()
    serve(scene, "shipped")
    await scene.enqueue(*ORDERS)

    frozen.process.send_signal(signal.SIGCONT)
    await goes_on(scene, frozen)

    rows = await scene.rows()
    del rows["next"]
    assert_right(rows, ORDERS)
    assert {row["status"] for row in rows.values()} == {"shipped"}


async def test_a_thawed_worker_that_nobody_has_missed_finishes_what_it_held(scene: Scene, start: Start) -> None:
    await scene.enqueue(*ORDERS)
    frozen = start("after_fetch")
    await has_frozen(frozen)

    async def is_over() -> bool:
        seconds, micros = await scene.redis.time()
        until = await scene.redis.zscore(scene.keys.alive, "frozen")
        return until is not None and until / 1000 < seconds + micros / 1e6

    await eventually(is_over)
    frozen.process.send_signal(signal.SIGCONT)
    await scene.finished()

    assert scene.api.stats().by_id == dict.fromkeys(ORDERS, 1)
    assert_right(await scene.rows(), ORDERS)
    assert await frozen.stop() == 0
