"""A worker is killed at each moment of a delivery, and another worker finishes without losses or duplicates."""

import asyncio
import signal
from pathlib import Path

import pytest
from integration.scene import GROUP, Scene, assert_right, ids, unguarded
from support import start_program

VICTIM = Path(__file__).with_name("victim.py")
ORDERS = ids(20)


async def kill_a_victim(
    scene: Scene, env: dict[str, str], moment: str, name: str = "victim", claim_idle: int = 1
) -> None:
    """Run a victim until its moment comes."""
    victim = start_program(
        VICTIM,
        moment,
        name,
        env={
            **env,
            "INGEST_UPSTREAM_URL": scene.api.url_template,
            "INGEST_UPSTREAM_TRIES": "1",
            "INGEST_UPSTREAM_STATUS": "404=not_found",
            "INGEST_CONCURRENCY": "8",
            "INGEST_CLAIM_IDLE": str(claim_idle),
            "INGEST_HEARTBEAT_TTL": "1",
        },
    )
    try:
        _, log = await asyncio.to_thread(victim.communicate, timeout=60)
    finally:
        victim.kill()
    assert victim.returncode == -signal.SIGKILL, log


async def everything_left(scene: Scene) -> list[str]:
    """The order IDs that are not settled yet, wherever Redis has them, each as often as it is there."""
    entries = [entry for lane in scene.keys.lanes for entry in await scene.redis.xrange(lane.stream)]
    waiting = await scene.redis.eval(
        "local ids = {}"
        " for _, packed in ipairs(redis.call('HVALS', KEYS[1])) do"
        "   local fields = cmsgpack.unpack(packed)"
        "   for i = 1, #fields, 2 do if fields[i] == 'order_id' then ids[#ids + 1] = fields[i + 1] end end"
        " end return ids",
        1,
        scene.keys.retry_entries,
    )
    return sorted(name.decode() for name in [*(fields[b"order_id"] for _, fields in entries), *waiting])


@pytest.mark.parametrize(
    ("moment", "heir"),
    [
        # Its successor of the same name, or another worker.
        # More was read of the two lanes than there are slots.
        ("before_release", "victim"),
        ("before_release", "another"),
        ("after_release", "another"),
        ("after_read", "victim"),
        ("before_fetch", "another"),
        ("after_fetch", "victim"),
        ("before_commit", "victim"),
        ("during_commit", "victim"),
        ("after_commit", "victim"),
        ("after_commit", "another"),
        ("after_ack", "another"),
    ],
)
async def test_a_worker_killed_on_the_way_to_the_ack_loses_no_order_and_stores_none_twice(
    scene: Scene, env: dict[str, str], moment: str, heir: str
) -> None:
    await scene.enqueue_in_both_lanes(*ORDERS)

    await kill_a_victim(scene, env, moment)

    before, left = await scene.rows(), await everything_left(scene)
    assert sorted({*before, *left}) == sorted(ORDERS), "each is stored, or still there, or both"
    assert len(left) == len(set(left))
    if moment != "during_commit":
        assert bool(before) == (moment in {"after_commit", "after_ack"})
    assert (len(left) < len(ORDERS)) == (moment == "after_ack"), "acked is what was committed"
    async with scene.worker(heir, claim_idle=1):
        await scene.finished()
    after = await scene.rows()
    assert_right(after, ORDERS)
    assert unguarded({order_id: after[order_id] for order_id in before}) == unguarded(before), (
        "ingested_at and all else unchanged"
    )
    assert await scene.dead() == []


@pytest.mark.parametrize("moment", ["before_reschedule", "after_reschedule", "after_move_due"])
async def test_a_worker_killed_around_a_retry_retries_each_order_exactly_once(
    scene: Scene, env: dict[str, str], moment: str
) -> None:
    # About half, because without any success it is an outage, in which orders do not go to the retry set.
    scene.api.behave(error_rate=0.5, fail_first=1)
    await scene.enqueue_in_both_lanes(*ORDERS)

    await kill_a_victim(scene, env, moment)

    before = await scene.rows()
    left = await everything_left(scene)
    assert len(left) == len(set(left)), "an entry is in the stream or waits, never both"
    assert sorted({*before, *left}) == sorted(ORDERS)
    async with scene.worker("victim", claim_idle=1):
        await scene.finished()
    rows = await scene.rows()
    assert_right(rows, ORDERS)
    # An order that was requested once and not moved is requested as a first attempt again.
    assert {row["attempts"] for row in rows.values()} <= {1, 2}
    assert max(scene.api.stats().by_id.values()) <= 3
    assert await scene.dead() == []
    assert await everything_left(scene) == []


@pytest.mark.parametrize("moment", ["before_dead_letter", "after_dead_letter"])
async def test_a_worker_killed_around_a_dead_lettering_leaves_one_dead_letter_for_each_order(
    scene: Scene, env: dict[str, str], moment: str
) -> None:
    scene.api.behave(any_id=False)
    await scene.enqueue_in_both_lanes(*ORDERS)

    await kill_a_victim(scene, env, moment)

    left, dead_lettered = await everything_left(scene), [letter["order_id"] for letter in await scene.dead()]
    assert sorted(left + dead_lettered) == sorted(ORDERS), "each is in the stream or dead-lettered, never both"
    assert bool(dead_lettered) == (moment == "after_dead_letter")
    async with scene.worker("victim", claim_idle=1, upstream_status="404=not_found"):
        await scene.finished()
    letters = await scene.dead()
    assert sorted(letter["order_id"] for letter in letters) == sorted(ORDERS)
    assert {letter["reason"] for letter in letters} == {"not_found"}
    assert await scene.stored() == 0


@pytest.mark.parametrize("moment", ["before_release", "after_release"])
async def test_a_worker_killed_while_it_releases_loses_nothing(scene: Scene, env: dict[str, str], moment: str) -> None:
    scene.api.behave(hang_rate=1.0)
    held = ORDERS[:5]
    await scene.enqueue(*held)

    await kill_a_victim(scene, env, moment)

    assert await everything_left(scene) == sorted(held)
    assert {entry.deliveries for entry in await scene.pending()} == {1 if moment == "before_release" else 0}
    scene.api.behave(hang_rate=0.0)
    async with scene.worker("another", claim_idle=1):
        await scene.finished()
    assert_right(await scene.rows(), held)


@pytest.mark.parametrize("moment", ["after_claim_own", "after_claim_dead"])
async def test_an_heir_killed_as_soon_as_it_has_inherited_passes_all_on(
    scene: Scene, env: dict[str, str], moment: str
) -> None:
    await scene.enqueue(*ORDERS)
    await kill_a_victim(scene, env, "before_fetch")

    # Not idle for long enough to be released, so that only the heartbeat shows that the holder is dead.
    heir = "victim" if moment == "after_claim_own" else "second victim"
    await kill_a_victim(scene, env, moment, heir, claim_idle=3600)

    before, left = await scene.rows(), await everything_left(scene)
    assert sorted({*before, *left}) == sorted(ORDERS)
    assert len(left) >= 8, "all that was inherited is still there"
    async with scene.worker("heir", claim_idle=1):
        await scene.finished()
    after = await scene.rows()
    assert_right(after, ORDERS)
    assert unguarded({order_id: after[order_id] for order_id in before}) == unguarded(before)


@pytest.mark.parametrize("moment", ["after_sweep", "after_restore", "after_claim_idle"])
async def test_a_leader_killed_as_soon_as_its_sweep_has_found_entries_leaves_them_for_anybody(
    scene: Scene, env: dict[str, str], moment: str
) -> None:
    await scene.enqueue(*ORDERS)
    async with scene.consumer("forgetful") as forgetful:
        assert len(await forgetful.read(8, 0.01)) == 8
        if moment == "after_restore":
            # An operator removes a live consumer together with its entries.
            await scene.redis.xgroup_delconsumer(scene.keys.stream, GROUP, "forgetful")
        # Otherwise the entry is not renewed, and its holder never had a heartbeat that could expire.

        await kill_a_victim(scene, env, moment)

        before, left = await scene.rows(), await everything_left(scene)
        assert sorted({*before, *left}) == sorted(ORDERS)
        assert len(left) == len(set(left)), "what was put back is there once"
        async with scene.worker("heir", claim_idle=1):
            await scene.finished()
    after = await scene.rows()
    assert_right(after, ORDERS)
    assert unguarded({order_id: after[order_id] for order_id in before}) == unguarded(before)
    assert await scene.dead() == []
