"""A worker that starts while the node with the record of partitions is down waits for it, and names it."""

from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from acceptance.commands import closing_workers
from cluster_set import ClusterSet
from servers.kinds import KINDS
from support import Cli, connected, eventually

from ingest.domain.source_name import queue_of
from ingest.lab.servers.server import free_port
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.queue.operate.controls import controls_key
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

ORDERS = [f"order-{number}" for number in range(30)]


# The other nodes notice the failure after this time, and then respond with other errors.
@pytest.mark.parametrize("node_timeout", ["500", "60000"])
async def test_a_worker_waits_for_the_record_of_partitions_and_names_its_server(
    cli: Cli, queue_name: str, tmp_path: Path, node_timeout: str
) -> None:
    options = {
        "cluster_require_full_coverage": "no",
        "cluster_node_timeout": node_timeout,
        "appendonly": "yes",
        "appendfsync": "always",
    }
    port = free_port()
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0, **options) as cluster:
        await cluster.become_ready()
        async with control_client(cluster.url()) as client, SimulatedApi(Behaviour(any_id=True), seed=1) as api:
            # The setting of the worker differs from the record.
            await LayoutRecord(client, queue_name, 6).read()
            async with Producer.connect(cluster.url(), queue_name, partitions=6) as producer:
                await producer.enqueue(ORDERS)
            record = await cluster.owner(layout_key(queue_name))
            server = f"127.0.0.1:{record.port}"
            trouble = f'ingest_partition_trouble{{kind="unavailable",node="{server}",partition="",source=""}} 1.0'
            env = {
                "INGEST_REDIS_URL": cluster.url(),
                "INGEST_UPSTREAM_URL": api.url_template,
                "INGEST_PARTITIONS": "3",
                "INGEST_STREAM": queue_name,
            }
            record.kill()
            with closing_workers(cli, env) as workers:
                worker = workers.start(processes=1, concurrency=20, metrics_port=port)
                logged = await worker.says("unavailable", server="redis")
                await responds(port, "/healthz", 200)
                await responds(port, "/readyz", 503, lambda text: server in text and queue_name in text)
                await responds(port, "/metrics", 200, lambda text: trouble in text)
                assert server in logged["error"]
                assert worker.events("process_started") == []

                await cluster.restart(record)

                await worker.says("process_started")
                await eventually(lambda: are_stored(cli.env["INGEST_POSTGRES_DSN"]), within=60)
                await responds(port, "/readyz", 200)
                await responds(port, "/metrics", 200, lambda text: server in text and trouble not in text)
                assert await worker.stop() == 0


async def test_a_missing_record_of_partitions_delays_its_own_source_only(
    cli: Cli, queue_name: str, tmp_path: Path
) -> None:
    options = {"cluster_require_full_coverage": "no", "cluster_node_timeout": "500", "appendonly": "yes"}
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0, **options) as cluster:
        await cluster.become_ready()
        controls = await cluster.owner(controls_key(queue_name))
        owners = {
            name: await cluster.owner(layout_key(queue_of(queue_name, name)))
            for name in map("shop-{}".format, range(30))
        }
        waiting = next(name for name, owner in owners.items() if owner is not controls)
        other = next(name for name, owner in owners.items() if owner is not owners[waiting])
        async with SimulatedApi(Behaviour(any_id=True), seed=1) as api:
            file = tmp_path / "sources.toml"
            file.write_text(
                "\n".join(f'[sources.{each}.upstream]\nurl = "{api.url_template}"' for each in (waiting, other))
            )
            env = {
                "INGEST_REDIS_URL": cluster.url(),
                "INGEST_SOURCES": str(file),
                "INGEST_STREAM": queue_name,
            }
            owners[waiting].kill()
            with closing_workers(cli, env) as workers:
                worker = workers.start(processes=1, concurrency=20)
                await worker.says("process_started")
                async with Producer.connect(cluster.url(), queue_of(queue_name, other)) as producer:
                    await producer.enqueue(ORDERS)
                await eventually(lambda: are_stored(cli.env["INGEST_POSTGRES_DSN"]), within=60)
                assert await worker.stop() == 0


async def responds(port: int, path: str, status: int, shows: Callable[[str], bool] = bool) -> None:
    """Wait until the worker responds so."""

    async def does() -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status == status and shows(await response.text())
        except aiohttp.ClientError:
            return False

    await eventually(does, within=60)


async def are_stored(dsn: str) -> bool:
    async with connected(dsn) as sql:
        count = await sql.fetchval("SELECT count(*) FROM orders WHERE order_id = ANY ($1::text[])", ORDERS)
    return bool(count == len(ORDERS))
