"""Measures the orders that are stored from each node of a cluster while one node is in trouble: `make node-faults`."""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
from acceptance.commands import Workers
from acceptance.node_troubles import TROUBLES, add_user
from cluster_set import ClusterSet
from redis.crc import key_slot
from servers.kinds import KINDS
from support import Cli, closing_cli

from ingest.bench.machine import Machine
from ingest.domain.partitions import Layout, partition_of
from ingest.lab.servers import embedded_servers
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client
from ingest.store.schema import migrate, migrations

QUEUE = "orders"
PARTITIONS = 6
# Seconds of each measurement: before a trouble, its beginning, its rest, its recovery, and afterwards.
TIMES = {"before": 5.0, "first 5 s": 5.0, "then": 10.0, "5 s after": 5.0, "later": 5.0}
REPLACED = "killed, with a replica"
# The cluster neither replaces the node nor stops for it, unless it is to be replaced.
OPTIONS = {"cluster_require_full_coverage": "no", "cluster_node_timeout": "60000", "appendonly": "yes"}


async def enqueue_at(rate: float, producer: Producer) -> None:
    """Enqueue orders at a rate. Those of the node in trouble wait alone."""
    numbers, began_at, sent = count(), time.monotonic(), 0
    calls: set[asyncio.Task[int]] = set()
    while True:
        due = int((time.monotonic() - began_at) * rate) - sent
        for _ in range(due):
            call = asyncio.create_task(producer.enqueue(f"order-{next(numbers)}"))
            calls.add(call)
            call.add_done_callback(calls.discard)
        sent += due
        await asyncio.sleep(0.02)


async def stored_per_second(dsn: str, nodes: list[int], seconds: float) -> Counter[int]:
    """Count the orders that are stored in this time, by the port of the node that owns their partition."""
    connection = await asyncpg.connect(dsn)
    try:
        since = await connection.fetchval("SELECT clock_timestamp()")
        await asyncio.sleep(seconds)
        rows = await connection.fetch("SELECT order_id FROM orders WHERE ingested_at > $1", since)
    finally:
        await connection.close()
    found = Counter(nodes[partition_of(row["order_id"], PARTITIONS)] for row in rows)
    return Counter({node: round(number / seconds) for node, number in found.items()})


async def measure(cli: Cli, dsn: str, trouble: str, rate: float) -> str:
    """Run one trouble on a new cluster, and return a row of the table."""
    is_replaced = trouble == REPLACED
    options = OPTIONS | ({"cluster_node_timeout": "5000"} if is_replaced else {})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
        cluster = stack.enter_context(ClusterSet.open(KINDS[0], folder, replicas=int(is_replaced), **options))
        await cluster.become_ready()
        url, layout = await add_user(cluster), Layout(QUEUE, PARTITIONS)
        streams = [Keys.of(queue).stream for queue in layout.queues]
        owners = [await cluster.owner(stream) for stream in streams]
        record = await cluster.owner(Keys.of(QUEUE).stream)
        number, victim = next((number, node) for number, node in enumerate(owners) if node is not record)
        async with control_client(url) as client, SimulatedApi(Behaviour(any_id=True, latency="0.05"), seed=1) as api:
            await LayoutRecord(client, QUEUE, PARTITIONS).read()
            env = {"INGEST_REDIS_URL": url, "INGEST_UPSTREAM_URL": api.url_template, "INGEST_STREAM": QUEUE}
            workers = Workers(cli, env | {"INGEST_PARTITIONS": str(PARTITIONS)})
            command = workers.start(processes=2, concurrency=100)
            stack.callback(command.close)
            for _ in range(2):
                await command.says("process_started")
            async with Producer.connect(url, QUEUE, partitions=PARTITIONS) as producer:
                load = asyncio.create_task(enqueue_at(rate, producer))
                ports = [node.port for node in owners]
                await stored_per_second(dsn, ports, TIMES["before"])  # until the load is steady
                found = [await stored_per_second(dsn, ports, TIMES["before"])]
                async with TROUBLES["killed" if is_replaced else trouble](
                    cluster, victim, key_slot(streams[number].encode())
                ):
                    found += [await stored_per_second(dsn, ports, TIMES[when]) for when in ("first 5 s", "then")]
                found += [await stored_per_second(dsn, ports, TIMES[when]) for when in ("5 s after", "later")]
                load.cancel()
                with suppress(asyncio.CancelledError):
                    await load
    others = sorted({*ports} - {victim.port})
    cells = [" / ".join(str(each[port]) for port in (victim.port, *others)) for each in found]
    return f"| {trouble} | {' | '.join(cells)} |"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make node-faults", description=__doc__)
    parser.add_argument("--trouble", choices=[*TROUBLES, REPLACED], action="append")
    parser.add_argument("--rate", type=float, default=300.0, help="orders enqueued per second")
    options = parser.parse_args()
    machine = Machine.here()
    sys.stdout.write(f"| node | {' | '.join(TIMES)} |\n|---|{'---:|' * len(TIMES)}\n")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INGEST_")}
    for trouble in options.trouble or [*TROUBLES, REPLACED]:
        with embedded_servers() as servers:
            asyncio.run(migrate(servers.postgres_dsn, migrations()))
            env = {"INGEST_POSTGRES_DSN": servers.postgres_dsn, "INGEST_METRICS_PORT": "0", "INGEST_LOG_FORMAT": "json"}
            with closing_cli(inherited | env) as cli:
                row = asyncio.run(measure(cli, servers.postgres_dsn, trouble, options.rate))
        sys.stdout.write(row + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{KINDS[0].name}, {machine.sentence()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
