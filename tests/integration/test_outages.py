"""An outage of the external API: requests stop, no attempt is used up, and work resumes by itself."""

from collections.abc import AsyncIterator

import pytest
from integration.scene import GROUP, Scene, assert_right, ids
from integration.watching import (
    all_stored_at_the_first_attempt,
    is_open,
    nothing_is_blamed,
    requests,
    throughout,
    until,
)
from servers.kinds import KINDS

from ingest.lab.servers.server import free_port
from ingest.lab.upstream import Behaviour, SimulatedApi

pytestmark = pytest.mark.long

# Kinds of outage as the behavior of the API for each request. "refused" is a closed port.
OUTAGES: dict[str, dict[str, object]] = {
    "refused": {},
    "reset": {"down": "reset"},
    "503": {"down": "503"},
    "500": {"error_rate": 1.0},
    "truncated": {"truncate_rate": 1.0},
    "hanging": {"hang_rate": 1.0},
    "401": {"token": "another one"},
}
ORDERS = ids(300)


class Door:
    """The external API of a scene, on a port that it comes back to."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._port = free_port()

    async def open(self) -> None:
        """Let the API serve every order."""
        self._scene.api = await SimulatedApi(Behaviour(any_id=True), port=self._port, seed=1).__aenter__()

    async def shut(self, way: str) -> None:
        """Begin an outage. `opened_again` ends it."""
        if way == "refused":
            await self._scene.api.__aexit__(None, None, None)
        else:
            self._scene.api.behave(**OUTAGES[way])

    async def opened_again(self) -> None:
        """Let the API serve every order again, whatever it did."""
        await self._scene.api.__aexit__(None, None, None)
        await self.open()


@pytest.fixture
async def door(scene: Scene) -> AsyncIterator[Door]:
    door = Door(scene)
    own = scene.api
    await door.open()
    yield door
    await scene.api.__aexit__(None, None, None)
    scene.api = own


# -- the external API -------------------------------------------------------------------------------------------


async def sit_an_outage_out(scene: Scene, door: Door, way: str) -> None:
    """The promise of the next two tests."""
    async with scene.worker(upstream_timeout=2) as worker:
        await scene.enqueue("before")
        await scene.finished()
        await door.shut(way)
        await scene.enqueue(*ORDERS)
        await until(lambda: is_open(worker))
        await until(lambda: worker.metric("ingest_in_flight") <= 1)
        asked, depth = requests(worker), (await scene.state()).depth or 0
        assert depth >= 200, "reading stops"

        await throughout(5.0, lambda: nothing_is_blamed(scene))

        assert is_open(worker)
        probes = requests(worker) - asked
        assert 1 <= probes <= 15
        assert depth - ((await scene.state()).depth or 0) <= probes + 1, "nothing but probes is read"
        await door.opened_again()
        await all_stored_at_the_first_attempt(scene, ["before", *ORDERS])
        assert not is_open(worker)
        assert worker.metric("ingest_orders_total", outcome="retried") == 0


@pytest.mark.parametrize("way", OUTAGES)
async def test_while_the_api_is_unavailable_it_is_only_probed_and_no_order_is_blamed(
    scene: Scene, door: Door, way: str
) -> None:
    await sit_an_outage_out(scene, door, way)


@pytest.mark.each_server
@pytest.mark.parametrize("redis_url", [KINDS[-1]], ids=[KINDS[-1].name], indirect=True)  # the newest there is
async def test_so_it_is_where_what_is_released_wakes_those_who_read(scene: Scene, door: Door) -> None:
    await sit_an_outage_out(scene, door, "500")


# -- a quarantined order in an outage ------------------------------------------------------------------------------------


async def test_a_quarantined_order_that_waits_when_the_outage_begins_stops_nobody(scene: Scene, door: Door) -> None:
    async with scene.consumer("gone") as gone:
        await scene.enqueue("quarantined")
        (delivery,) = await gone.read(1, 1.0)
        # Delivered so often that it may have killed its consumers, and released, so that any consumer may claim it.
        await scene.redis.xclaim(scene.keys.stream, GROUP, "gone", 0, [delivery.entry.id], retrycount=6, justid=True)
    scene.api.behave(latency="5", error_rate=1.0)
    await scene.enqueue(*ids(15))

    async with scene.worker(claim_idle=1) as worker:
        # It reclaims when its first heartbeat has lasted for a lifetime, and the orders are in flight then.
        await until(lambda: worker.metric("ingest_redeliveries_total", reason="idle") == 1)
        await until(lambda: worker.metric("ingest_in_flight") == 16)
        await until(lambda: is_open(worker))
        await door.opened_again()

        await scene.finished()

    assert await scene.dead() == []
    assert_right(await scene.rows(), ["quarantined", *ids(15)])
