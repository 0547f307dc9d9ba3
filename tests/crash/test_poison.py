"""Under the real supervisor, an order that kills its process is dead-lettered without other orders."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acceptance.commands import WorkerCommand
from integration.scene import Scene, assert_right, ids
from servers.kinds import KINDS
from support import start_program

pytestmark = pytest.mark.long

DOOMED = Path(__file__).with_name("doomed.py")
DELIVERIES = 4
Start = Callable[..., WorkerCommand]


@pytest.fixture
def start(scene: Scene, env: dict[str, str]) -> Iterator[Start]:
    """Starts a command whose workers die at a moment of the poison message, and kills it at the end of the test."""
    commands: list[WorkerCommand] = []

    def start(moment: str, **settings: object) -> WorkerCommand:
        changed = {
            "upstream_url": scene.api.url_template,
            "processes": 2,
            "concurrency": 10,
            "heartbeat_ttl": 1.5,
            "max_deliveries": DELIVERIES,
            **settings,
        }
        own = {f"INGEST_{name.upper()}": str(value) for name, value in changed.items()}
        commands.append(WorkerCommand(start_program(DOOMED, moment, env={**env, **own})))
        return commands[-1]

    yield start
    for command in commands:
        command.close()
        command.process.communicate()


async def only_the_poison_is_dead_lettered(scene: Scene, poison: list[str], order_ids: list[str]) -> None:
    """All else is stored."""
    await scene.finished(within=90)
    letters = sorted((letter["order_id"], letter["reason"]) for letter in await scene.dead())
    assert letters == [(order_id, "max_deliveries") for order_id in sorted(poison)]
    assert_right(await scene.rows(), order_ids)


@pytest.mark.parametrize("moment", ["before_fetch", "after_fetch"])
async def test_a_poison_in_mid_run_is_dead_lettered_and_all_others_are_stored(
    scene: Scene, start: Start, moment: str
) -> None:
    order_ids = ids(200)
    scene.api.behave(latency="0.02-0.1")
    await scene.enqueue(*order_ids[:50], "poison", *order_ids[50:])

    command = start(moment)

    await only_the_poison_is_dead_lettered(scene, ["poison"], order_ids)
    assert len(command.events("process_died", code=-signal.SIGSEGV)) == DELIVERIES
    assert await command.stop() == 0
    assert len(command.events("process_died")) == DELIVERIES, "of nothing else, and of nothing afterwards"


@pytest.mark.parametrize("place", [0, 6, 12])
async def test_what_is_in_flight_together_with_a_poison_when_it_strikes_is_none(
    scene: Scene, start: Start, place: int
) -> None:
    # Each of them is quarantined and isolated in turn.
    order_ids = ids(12)
    scene.api.behave(latency="0.3")
    await scene.enqueue(*order_ids[:place], "poison", *order_ids[place:])

    # One read takes all of them, in any process, and they are in flight for a while.
    command = start("before_fetch", concurrency=100)

    await only_the_poison_is_dead_lettered(scene, ["poison"], order_ids)
    assert len(command.events("process_died")) == DELIVERIES
    assert await command.stop() == 0


@pytest.mark.parametrize("redis_url", KINDS, ids=[kind.name for kind in KINDS], indirect=True)
async def test_several_poisons_in_flight_together_are_each_found_out(scene: Scene, start: Start) -> None:
    order_ids = ids(8)
    poison = ids(3, "poison")
    scene.api.behave(latency="0.2")
    await scene.enqueue(*order_ids[:4], *poison, *order_ids[4:])

    command = start("before_fetch", concurrency=100)

    await only_the_poison_is_dead_lettered(scene, poison, order_ids)
    assert await command.stop() == 0


@pytest.mark.parametrize("deliveries", [2, 3])
async def test_however_few_deliveries_are_allowed_no_neighbour_of_a_poison_is_dead_lettered(
    scene: Scene, start: Start, deliveries: int
) -> None:
    order_ids = ids(10)
    scene.api.behave(latency="0.3")
    await scene.enqueue(*order_ids[:5], "poison", *order_ids[5:])

    command = start("before_fetch", concurrency=100, max_deliveries=deliveries)

    await only_the_poison_is_dead_lettered(scene, ["poison"], order_ids)
    assert await command.stop() == 0


async def test_a_poison_does_not_stop_the_line_while_it_is_being_found_out(scene: Scene, start: Start) -> None:
    await scene.enqueue("poison")
    command = start("before_fetch", max_deliveries=10)

    for number in range(100):
        await scene.enqueue(f"order-{number}")
        await scene.stored_at_least(number + 1, within=15)

    await only_the_poison_is_dead_lettered(scene, ["poison"], ids(100))
    assert await command.stop() == 0
