"""Plays a story, and returns the counterexample to the promises of polls, backfills and reconciliations, if there is one.

A backfill that is done, and a reconciliation that is clean, have seen every order that the shop had shown when they began. After all
faults have ended and one more poll, every order is stored in its last version. Otherwise, an operation has reported that it cannot know.
"""

import asyncio
from datetime import timedelta

from fakes.virtual_time import VirtualTimeLoop
from model.lists.story import Story
from model.lists.world import BEGINNING, Endless, MakeList, World

# Changes are shown by then.
_SETTLED = timedelta(seconds=100)
_WAIT = 120.0
_EARLIEST = BEGINNING - timedelta(days=60)


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
    # Earlier orders are the backfill's.
    since = _EARLIEST if world.story.is_stored else world.now()
    has_reported = await world.poll() == "reported"
    for step, value in world.story.steps:
        began_at = world.now()
        match step:
            case "change":
                world.change(int(min(value, 10)))
            case "pass":
                await asyncio.sleep(value)
            case "poll":
                has_reported |= await world.poll() == "reported"
            case _:
                verdict = await (world.backfill() if step == "backfill" else world.reconcile())
                if verdict == "clean":
                    world.work()
                    if lacking := world.lacking(_EARLIEST, began_at - _SETTLED):
                        return f"{step} is clean without {', '.join(lacking[:5])}"
                    since = _EARLIEST if step == "backfill" else since
        await asyncio.sleep(1.0)
        world.work()
    world.calm()
    await asyncio.sleep(_WAIT)
    verdict = await world.poll()
    world.work()
    if verdict != "clean" or has_reported:
        return None
    lacking = world.lacking(since, world.now())
    return f"the last poll is clean without {', '.join(lacking[:5])}" if lacking else None
