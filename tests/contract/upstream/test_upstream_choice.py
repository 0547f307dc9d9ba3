"""The setting that chooses the client: a worker runs with either, and ends with one line if it cannot."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from acceptance.commands import Workers, closing_workers
from integration.scene import Scene, assert_right, ids
from support import Cli

from ingest.lab.servers import EmbeddedServers
from ingest.settings import load_settings
from ingest.upstream.http.transport import Kind

pytestmark = pytest.mark.each_client

ORDERS = ids(100)


@pytest.fixture
def redis_url(servers: EmbeddedServers) -> str:
    """One kind of Redis will do."""
    return servers.redis_url


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    with closing_workers(cli, {"INGEST_UPSTREAM_URL": scene.api.url_template, "INGEST_CONCURRENCY": "10"}) as workers:
        yield workers


async def test_a_worker_stores_orders_with_either_client(scene: Scene, workers: Workers, kind: Kind) -> None:
    scene.api.behave(fail_first=1, error_rate=0.1, reset_rate=0.1, truncate_rate=0.1)

    worker = workers.start("--processes", "1", upstream_client=kind)
    await scene.enqueue(*ORDERS)
    await scene.finished()
    code = await worker.stop()

    assert_right(await scene.rows(), ORDERS)
    assert code == 0
    assert worker.events("process_died") == []


def test_the_name_of_the_client_may_be_in_upper_case() -> None:
    assert load_settings(upstream_client="AIOHTTP").upstream_client == "aiohttp"


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        (
            {"INGEST_UPSTREAM_CLIENT": "curl"},
            "curl is no longer supported: leave it at native, which needs less CPU time",
        ),
        (
            {"HTTPS_PROXY": "socks5://p", "INGEST_UPSTREAM_URL": "https://shop.example/{order_id}"},
            "HTTPS_PROXY: must start with http:// or https://, such as http://proxy.example:3128",
        ),
        (
            {"INGEST_UPSTREAM_AUTH": "oauth2"},
            "INGEST_UPSTREAM_OAUTH2_URL is missing: INGEST_UPSTREAM_AUTH=oauth2 needs it",
        ),
        (
            {"INGEST_UPSTREAM_URL": "https://shop.example/{order_id}", "INGEST_UPSTREAM_CA_FILE": "/nowhere/ca.pem"},
            "INGEST_UPSTREAM_CA_FILE: cannot read /nowhere/ca.pem: No such file or directory",
        ),
    ],
)
def test_a_worker_without_a_usable_client_exits_with_one_line(variables: dict[str, str], problem: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ingest", "worker"],
        env={"INGEST_METRICS_PORT": "0", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert problem in done.stderr
