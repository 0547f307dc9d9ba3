"""A worker whose credential expires, is rotated, or is unavailable for a while. No order is lost, and none is blamed."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import trustme
from acceptance.commands import Workers, closing_workers
from integration.scene import Scene, assert_right, ids
from integration.watching import all_stored_at_the_first_attempt, is_open, nothing_is_blamed, until
from pydantic import SecretStr
from support import Cli, eventually

from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.lab.upstream.tls import server_tls

pytestmark = pytest.mark.long


def oauth2(scene: Scene) -> Mapping[str, object]:
    return {
        "upstream_auth": "oauth2",
        "upstream_oauth2_url": scene.api.token_url,
        "upstream_oauth2_client_id": SecretStr("shop"),
        "upstream_oauth2_client_secret": SecretStr("s3cr3t"),
    }


async def announce_for(scene: Scene, seconds: float, prefix: str) -> list[str]:
    """Enqueue orders steadily, and return their IDs."""
    announced: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        orders = ids(5, f"{prefix}-{len(announced)}")
        await scene.enqueue(*orders)
        announced += orders
        await asyncio.sleep(0.1)
    return announced


@pytest.mark.parametrize("down", [pytest.param("503", marks=pytest.mark.nightly), "hang"])
async def test_tokens_that_expire_and_an_authorization_server_that_fails_for_long_cost_no_order(
    scene: Scene, down: str
) -> None:
    scene.api.behave(client="shop:s3cr3t", token_lifetime=2.0, token_latency=0.02, latency="0.01-0.05")

    async with scene.worker(upstream_timeout=3.0, upstream_read_timeout=3.0, max_attempts=2, **oauth2(scene)) as worker:
        orders = await announce_for(scene, 5.0, "before")
        await until(lambda: not is_open(worker))
        before = scene.api.authority.requests
        scene.api.behave(authority_down=down)
        orders += await announce_for(scene, 10.0, "meanwhile")
        await until(lambda: is_open(worker))
        await nothing_is_blamed(scene)
        assert await scene.stored() < len(orders)
        during = scene.api.authority.requests - before
        scene.api.behave(authority_down=None)
        await all_stored_at_the_first_attempt(scene, orders)
        await until(lambda: not is_open(worker))

    assert before >= 2  # they expired
    assert 2 <= during <= 30
    assert scene.api.authority.peak == 1


async def test_tokens_that_last_for_less_than_their_request_takes_are_used(scene: Scene) -> None:
    scene.api.behave(client="shop:s3cr3t", token_lifetime=1.0, token_latency=1.5)
    orders = ids(200)
    await scene.enqueue(*orders)

    async with scene.worker(max_attempts=1, **oauth2(scene)) as worker:
        await all_stored_at_the_first_attempt(scene, orders)

        assert not is_open(worker)
    assert scene.api.authority.peak == 1
    assert scene.api.authority.requests <= 10


async def test_an_order_that_waits_for_the_quota_for_longer_than_a_token_lasts_is_sent_with_the_next_token(
    scene: Scene,
) -> None:
    scene.api.behave(client="shop:s3cr3t", token_lifetime=2.0)
    orders = ids(12)
    await scene.enqueue(*orders)

    async with scene.worker(upstream_rate=2, upstream_quota=scene.queue, **oauth2(scene)):
        await all_stored_at_the_first_attempt(scene, orders)

    assert scene.api.stats().by_status == {"200": 12}


async def test_an_order_that_is_not_ready_is_requested_again_after_the_configured_time(scene: Scene) -> None:
    scene.api.behave(any_id=False)
    await scene.enqueue("early")

    async with scene.worker(upstream_status="404=retry:1s", max_attempts=30):
        await eventually(lambda: requested(scene, "early", 2))
        assert await scene.dead() == []
        scene.api.behave(any_id=True)
        await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ["early"])
    assert rows["early"]["attempts"] >= 3


async def requested(scene: Scene, order_id: str, times: int) -> bool:
    return scene.api.stats().by_id.get(order_id, 0) >= times


class Party:
    """An authority and a certificate of the API, in files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        authority = trustme.CA()
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        issued = authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(self.cert))
        issued.private_key_pem.write_to_path(str(self.key))


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return Party(tmp_path / "first"), Party(tmp_path / "second")


@pytest.fixture
async def https_scene(redis_url: str, dsn: str, queue_name: str, parties: tuple[Party, Party]) -> AsyncIterator[Scene]:
    """The scene, with an API on HTTPS that has the first certificate."""
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        tls = server_tls(parties[0].cert, parties[0].key, None)
        async with SimulatedApi(Behaviour(any_id=True, token="t0ken-one"), seed=1, tls=tls) as api:
            scene.api = api
            yield scene


@pytest.fixture
def workers(cli: Cli, https_scene: Scene, tmp_path: Path, parties: tuple[Party, Party]) -> Iterator[Workers]:
    (tmp_path / "token").write_text("t0ken-one\n")
    (tmp_path / "ca.pem").write_bytes(parties[0].ca.read_bytes())
    variables = {
        "INGEST_UPSTREAM_URL": https_scene.api.url_template,
        "INGEST_UPSTREAM_TOKEN_FILE": str(tmp_path / "token"),
        "INGEST_UPSTREAM_CA_FILE": str(tmp_path / "ca.pem"),
    }
    with closing_workers(cli, variables) as workers:
        yield workers


@pytest.mark.parametrize("client", ["native", "aiohttp"])
async def test_a_worker_uses_a_rotated_token_and_a_rotated_authority_without_a_restart(
    https_scene: Scene, workers: Workers, tmp_path: Path, parties: tuple[Party, Party], client: str
) -> None:
    scene = https_scene
    worker = workers.start("--processes", "1", upstream_client=client)
    await scene.enqueue(*ids(50, "before"))
    await scene.finished()

    port = int(scene.api.base_url.rpartition(":")[2])
    await scene.api.__aexit__(None, None, None)
    tls = server_tls(parties[1].cert, parties[1].key, None)
    async with SimulatedApi(Behaviour(any_id=True, token="t0ken-two"), seed=1, port=port, tls=tls):
        await scene.enqueue(*ids(50, "after"))
        # A request that fails less than a second before the new files are in use would count: others succeed after it.
        await until(lambda: bool(worker.events("circuit_opened")))
        replace(tmp_path / "token", b"t0ken-two\n")
        replace(tmp_path / "ca.pem", parties[1].ca.read_bytes())
        await all_stored_at_the_first_attempt(scene, [*ids(50, "before"), *ids(50, "after")])
        code = await worker.stop()

    assert code == 0
    assert worker.events("process_died") == []
    assert len(worker.events("secret_reloaded")) == 2
    assert "t0ken" not in str(worker.log)


def replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.replace(file)
