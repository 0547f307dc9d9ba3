"""Plays a story, and returns the counterexample to the promises of polls, backfills and reconciliations, if there is one.

A backfill that is done, and a reconciliation that is clean, have seen every order that the shop had shown when they began. After all
faults have ended and one more poll, every order is stored in its last version. Otherwise, an operation has reported that it cannot know.
"""

import asyncio
from datetime import datetime, timedelta

from fakes.virtual_time import VirtualTimeLoop
from model.lists.story import Story
from model.lists.world import EARLIEST, Endless, MakeList, World

# Changes are shown by then.
_SETTLED = timedelta(seconds=100)
# The times of a database that is ahead end later.
_WAIT = 200.0
_CUT = 0.3
# So often, a poll reports an empty list.
_MOST_EMPTY = 3


def counterexample(story: Story, make_list: MakeList) -> str | None:
    """Play a story in virtual time. Return a description of a broken promise, or None."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_played(story, make_list))


async def _played(story: Story, make_list: MakeList) -> str | None:
    world = World(story, make_list)
    try:
        broken = await _broken_promise(world)
    except Endless:
        broken = "a reading does not end"
    return None if broken is None else "\n".join([broken, str(story), *world.log])


async def _broken_promise(world: World) -> str | None:
    await world.poll()
    for step, value in world.story.steps:
        if broken := await _broken_by(world, step, value):
            return broken
        await asyncio.sleep(1.0)
        world.work()
    world.calm()
    await asyncio.sleep(_WAIT)
    verdict = await world.poll()
    for _ in range(_MOST_EMPTY):
        # A list of which all orders were deleted contradicts the reading before it.
        if verdict == "failed" and "is empty" in world.log[-1]:
            verdict = await world.poll()
    world.work()
    if verdict == "failed":
        return None if "breaking_id" in world.story.modes else "the last poll fails"
    if world.has_doubts:
        return None
    lacking = world.lacking(world.complete_from, world.now())
    return f"the last poll ends without {', '.join(lacking[:5])}" if lacking else None


async def _broken_by(world: World, step: str, value: float) -> str | None:
    """Take a step, and return the promise that it breaks."""
    began_at = world.now()
    match step:
        case "change":
            world.change(int(min(value, 10)))
        case "pass":
            await asyncio.sleep(value)
        case "poll" | "cut poll":
            await (world.poll() if step == "poll" else world.poll(_CUT * value))
        case "reconcile":
            if await world.reconcile() == "clean" and (lacking := _lacking(world, began_at)):
                return f"a reconciliation is clean without {lacking}"
        case _:
            verdict = await (world.backfill() if step == "backfill" else world.backfill(_CUT * value))
            if verdict == "clean" and (lacking := _lacking(world, world.backfill_from)):
                return f"a backfill is done without {lacking}"
    return None


def _lacking(world: World, began_at: datetime) -> str:
    """Return some orders that are not stored as the shop had shown them before a reading began."""
    world.work()
    return ", ".join(world.lacking(EARLIEST, began_at - _SETTLED)[:5])
