"""The command, the HTTP API, a relay and a program with threads enqueue orders in their partitions of a queue in a cluster."""

import asyncio
from pathlib import Path

from cluster_set import ClusterSet
from http_api import NOWHERE, running_api
from integration.scene import ids
from servers.kinds import KINDS
from support import Cli, connected, eventually

from ingest import SyncProducer
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import control_client
from ingest.store.outbox.outbox_schema import create_outbox

TABLE = "order_outbox"


async def test_all_ways_in_use_the_partitions_of_the_record(
    tmp_path: Path, empty_dsn: str, queue_name: str, cli: Cli
) -> None:
    layout, order_ids = Layout(queue_name, 6), ids(400)
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0) as cluster:
        await cluster.become_ready()
        env = {"INGEST_REDIS_URL": cluster.url(), "INGEST_STREAM": queue_name, "INGEST_OUTBOX_DSN": empty_dsn}

        # The first one records the partitions, which the others find there.
        given = "\n".join(order_ids[:100])
        enqueued = await asyncio.to_thread(
            cli.run, "enqueue", "--file", "-", "--json", stdin=given, env=env | {"INGEST_PARTITIONS": "6"}
        )
        async with running_api(cluster.url(), NOWHERE, queue_name) as api:
            call = {"json": {"order_ids": order_ids[100:200]}, "headers": {"Idempotency-Key": "one"}}
            posted = [await api.post("/v1/orders", **call) for _ in range(2)]
        with SyncProducer(cluster.url(), queue_name) as producer:
            counts = await asyncio.gather(
                *(asyncio.to_thread(producer.enqueue, order_id) for order_id in order_ids[200:300])
            )
        await create_outbox(empty_dsn, TABLE, None)
        async with connected(empty_dsn) as sql:
            rows = [(order_id,) for order_id in order_ids[300:]]
            await sql.executemany(f"INSERT INTO {TABLE} (order_id) VALUES ($1)", rows)
            cli.start("relay", env=env)

            async def is_empty() -> bool:
                return not await sql.fetchval(f"SELECT count(*) FROM {TABLE}")

            await eventually(is_empty)

        async with control_client(cluster.url()) as client:
            found = [await client.xrange(Keys.of(queue).stream) for queue in layout.queues]
            assert not await client.exists(Keys.of(queue_name).stream)

    assert (enqueued.returncode, counts) == (0, [1] * 100), enqueued.stderr
    assert posted == [(202, {"accepted": 100, "duplicates": 0})] * 2
    for queue, entries in zip(layout.queues, found, strict=True):
        expected = [order_id for order_id in order_ids if layout.queue_of_order(order_id) == queue]
        assert sorted(fields[b"order_id"].decode() for _, fields in entries) == sorted(expected)
