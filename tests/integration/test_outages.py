"""An outage of the external API: requests stop, no attempt is used up, and work resumes by itself."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiohttp import web
from integration.scene import GROUP, Scene, assert_right, document, ids
from integration.watching import (
    all_stored_at_the_first_attempt,
    is_open,
    nothing_is_blamed,
    requests,
    throughout,
    until,
)
from listener import listening
from scripted_http import http
from servers.kinds import KINDS, Kind
from support import eventually

from ingest.lab.servers import EmbeddedServers
from ingest.lab.servers.server import free_port
from ingest.lab.upstream import Behaviour, SimulatedApi

pytestmark = pytest.mark.long

# Kinds of outage, as what the API does to each request; "refused" is nobody listening.
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
        """Begin an outage; `opened_again` ends it."""
        if way == "refused":
            await self._scene.api.__aexit__(None, None, None)
        else:
            self._scene.api.behave(**OUTAGES[way])

    async def opened_again(self) -> None:
        """Let the API serve every order again, whatever it did."""
        await self._scene.api.__aexit__(None, None, None)
        await self.open()


@pytest.fixture
def redis_url(request: pytest.FixtureRequest, servers: EmbeddedServers) -> Iterator[str]:
    """The embedded server, or one of the kind that a test names by `indirect`."""
    kind: Kind | None = getattr(request, "param", None)
    if kind is None:
        yield servers.redis_url
        return
    with TemporaryDirectory(prefix="ingest-") as folder, kind.server(Path(folder) / "server") as server:
        yield server.url


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


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


@pytest.mark.parametrize("redis_url", [KINDS[-1]], ids=[KINDS[-1].name], indirect=True)  # the newest there is
async def test_so_it_is_where_what_is_released_wakes_those_who_read(scene: Scene, door: Door) -> None:
    await sit_an_outage_out(scene, door, "500")


@pytest.mark.parametrize("way", OUTAGES)
async def test_an_outage_in_full_flight_dead_letters_nothing_and_loses_nothing(
    scene: Scene, door: Door, way: str
) -> None:
    scene.api.behave(latency="0.05")
    await scene.enqueue(*ORDERS)

    async with (
        scene.worker("a", upstream_timeout=2, max_attempts=2) as a,
        scene.worker("b", upstream_timeout=2) as b,
    ):
        await scene.stored_at_least(50)
        await door.shut(way)
        await until(lambda: is_open(a) and is_open(b))
        await door.opened_again()
        await scene.finished()

    assert await scene.dead() == []
    rows = await scene.rows()
    assert_right(rows, ORDERS)
    # Where nobody listens any more, what was in flight is cut off, some of it before an answer to what was asked for later.
    assert [row["attempts"] for row in rows.values()].count(1) >= (280 if way == "refused" else len(ORDERS))


async def test_an_outage_that_a_worker_with_one_slot_starts_in_dead_letters_nothing(scene: Scene) -> None:
    scene.api.behave(error_rate=1.0)
    orders = ids(5)
    await scene.enqueue(*orders)

    async with scene.worker(concurrency=1, max_attempts=2) as worker:
        await until(lambda: is_open(worker))
        assert await scene.dead() == []
        scene.api.behave(error_rate=0.0)
        await scene.finished()

    assert await scene.dead() == []
    assert_right(await scene.rows(), orders)


async def test_an_api_that_asks_for_time_with_every_answer_gets_it_and_no_order_is_blamed(scene: Scene) -> None:
    scene.api.behave(unavailable_rate=1.0, retry_after=2)
    await scene.enqueue(*ORDERS)

    async with scene.worker() as worker:
        await until(lambda: is_open(worker))
        await until(lambda: worker.metric("ingest_in_flight") <= 1)
        asked = scene.api.stats().requests

        await throughout(5.0, lambda: asyncio.sleep(0))

        assert scene.api.stats().requests - asked <= 4
        scene.api.behave(unavailable_rate=0.0)
        await all_stored_at_the_first_attempt(scene, ORDERS)


async def test_a_long_wait_that_was_asked_for_once_is_not_waited_before_every_later_probe(scene: Scene) -> None:
    scene.api.behave(error_rate=1.0)
    await scene.enqueue(*ORDERS)

    async with scene.worker() as worker:
        await until(lambda: is_open(worker))
        # One probe is told to wait; from then on the API is as silent about it as before.
        scene.api.behave(error_rate=0.0, unavailable_rate=1.0, retry_after=5)
        asked = scene.api.stats().requests
        await until(lambda: scene.api.stats().requests > asked)
        scene.api.behave(error_rate=1.0, unavailable_rate=0.0)
        asked = scene.api.stats().requests
        await until(lambda: scene.api.stats().requests > asked)
        told = time.monotonic()
        await until(lambda: scene.api.stats().requests > asked + 3, within=60)

        assert time.monotonic() - told < 14, "three pauses, of at most four seconds each"


async def test_an_api_that_hangs_and_goes_on_is_asked_at_the_full_rate_again_within_seconds(scene: Scene) -> None:
    scene.api.behave(latency="0.1")
    await scene.enqueue(*ids(4_000))

    async with scene.worker(upstream_timeout=1, upstream_tries=3) as worker:
        await scene.stored_at_least(100)
        full = scene.api.stats().rate_last_second
        scene.api.behave(hang_rate=1.0)
        await until(lambda: is_open(worker))
        await until(lambda: scene.api.stats().rate_last_second == 0)
        scene.api.behave(hang_rate=0.0)

        await until(lambda: scene.api.stats().rate_last_second > 0.7 * full, within=10)

        assert not is_open(worker)
        await all_stored_at_the_first_attempt(scene, ids(4_000))


async def test_what_hangs_when_the_outage_is_noticed_is_released_at_once(scene: Scene) -> None:
    scene.api.behave(error_rate=0.6, hang_rate=0.4)
    await scene.enqueue(*ORDERS)

    async with scene.worker(upstream_timeout=3600, upstream_read_timeout=3600) as worker:
        await until(lambda: is_open(worker))

        await until(lambda: worker.metric("ingest_in_flight") <= 2, within=3)
        # The API learns of each that its connection is closed.
        await until(lambda: scene.api.stats().concurrency <= 2, within=3)

        scene.api.behave(error_rate=0.0, hang_rate=0.0)
        await all_stored_at_the_first_attempt(scene, ORDERS)


async def test_probes_that_hang_keep_nobody_from_working_when_the_api_is_back(scene: Scene) -> None:
    scene.api.behave(error_rate=1.0)
    await scene.enqueue(*ORDERS)

    async with scene.worker(concurrency=2, upstream_timeout=3600, upstream_read_timeout=3600) as worker:
        await until(lambda: is_open(worker))
        scene.api.behave(error_rate=0.0, hang_rate=1.0)
        await until(lambda: scene.api.stats().concurrency >= 3, within=30)
        scene.api.behave(hang_rate=0.0)

        await all_stored_at_the_first_attempt(scene, ORDERS)


async def test_a_stop_while_the_api_is_unavailable_releases_everything_within_the_grace_period(
    scene: Scene, door: Door
) -> None:
    await scene.enqueue(*ORDERS)
    await door.shut("hanging")

    async with scene.worker("leaver", upstream_timeout=1, shutdown_grace=2) as worker:
        await until(lambda: is_open(worker))
        # As many probes as may hang at once, or nearly so.
        worker_timeout = requests(worker)
        await until(lambda: requests(worker) > worker_timeout)
        asked = time.monotonic()
        await worker.stop()

        assert time.monotonic() - asked < 2 + 3
    left = await scene.pending()
    assert {entry.deliveries for entry in left} <= {0}
    await door.opened_again()
    async with scene.worker("heir", claim_idle=3600):
        await all_stored_at_the_first_attempt(scene, ORDERS)


async def test_an_api_that_throttles_is_asked_for_less_and_is_not_taken_for_unavailable(scene: Scene) -> None:
    scene.api.behave(latency="0.05", concurrency_limit=8, retry_after=1)
    order_ids = ids(800)
    await scene.enqueue(*order_ids)
    limits: list[float] = []

    async with scene.worker(concurrency=60) as worker:

        async def look() -> bool:
            limits.append(worker.metric("ingest_concurrency_limit"))
            assert not is_open(worker)
            return await scene.is_finished()

        await eventually(look, within=60)
        throttled = worker.metric("ingest_upstream_request_seconds_count", code="429")

    assert limits[0] == 60
    assert min(limits) <= 12
    assert throttled < 400, "less than if it went on asking for 60 at once"
    await all_stored_at_the_first_attempt(scene, order_ids)


# -- one order's own fault --------------------------------------------------------------------------------------


@pytest.fixture
async def picky_api() -> AsyncIterator[str]:
    """A URL template of an API that answers 500 to orders whose names begin with `bad`, and serves all others."""

    async def answer(request: web.Request) -> web.Response:
        order_id = request.match_info["order_id"]
        if order_id.startswith("bad"):
            return web.Response(status=500)
        return web.Response(body=document(order_id), content_type="application/json")

    application = web.Application()
    application.router.add_get("/orders/{order_id}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", free_port())
    await site.start()
    yield site.name + "/orders/{order_id}"
    await runner.cleanup()


@pytest.mark.parametrize("bad", [["bad"], ["bad-1", "bad-2", "bad-3"]])
async def test_an_order_that_always_fails_among_healthy_ones_is_dead_lettered_and_the_circuit_stays_closed(
    scene: Scene, picky_api: str, bad: list[str]
) -> None:
    healthy: list[str] = []

    async with scene.worker(max_attempts=3, upstream_url=picky_api) as worker:
        await scene.enqueue(*bad)

        async def dead_lettered() -> bool:
            assert not is_open(worker)
            healthy.append(f"good-{len(healthy)}")
            await scene.enqueue(healthy[-1])
            return await scene.redis.xlen(scene.keys.dead) == len(bad)

        await eventually(dead_lettered, within=30, every=0.05)
        await scene.finished()

    letters = await scene.dead()
    assert sorted(letter["order_id"] for letter in letters) == bad
    assert {(letter["reason"], letter["attempts"]) for letter in letters} == {("attempts_exhausted", "3")}
    assert_right(await scene.rows(), healthy)


async def test_an_order_that_always_fails_is_dead_lettered_even_if_no_other_comes(scene: Scene, picky_api: str) -> None:
    await scene.enqueue("bad")

    async with scene.worker(max_attempts=2, upstream_url=picky_api):
        await scene.finished()

    assert [letter["reason"] for letter in await scene.dead()] == ["attempts_exhausted"]


# -- a quarantined order in an outage ------------------------------------------------------------------------------------


async def test_a_quarantined_order_that_waits_when_the_outage_begins_stops_nobody(scene: Scene, door: Door) -> None:
    async with scene.consumer("gone") as gone:
        await scene.enqueue("quarantined")
        (delivery,) = await gone.read(1, 1.0)
        # Handed over so often that it may have killed those who held it; and released, so that anybody may take it.
        await scene.redis.xclaim(scene.keys.stream, GROUP, "gone", 0, [delivery.entry.id], retrycount=6, justid=True)
    scene.api.behave(latency="3", error_rate=1.0)
    await scene.enqueue(*ids(15))

    async with scene.worker(claim_idle=1) as worker:
        # It looks for what others abandoned when its first heartbeat has lasted for a lifetime: the orders are in flight then.
        await until(lambda: worker.metric("ingest_redeliveries_total", reason="idle") == 1)
        await until(lambda: worker.metric("ingest_in_flight") == 16)
        await until(lambda: is_open(worker))
        await door.opened_again()

        await scene.finished()

    assert await scene.dead() == []
    assert_right(await scene.rows(), ["quarantined", *ids(15)])


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_worker_whose_connection_leads_to_a_server_that_fails_goes_on_with_another(
    scene: Scene, status: int
) -> None:
    """A load balancer of connections: the first one leads to a server that fails, the others to those that work."""
    connections = 0

    async def balance(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        fails = not connections
        connections += 1
        while True:
            order_id = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().rpartition("/")[2]
            writer.write(http(status, b"{}") if fails else http(200, document(order_id)))

    await scene.enqueue(*ORDERS[:20])

    async with (
        listening(balance) as port,
        scene.worker(upstream_url=f"http://127.0.0.1:{port}/orders/{{order_id}}", upstream_tries=3, concurrency=1),
    ):
        await all_stored_at_the_first_attempt(scene, ORDERS[:20])
