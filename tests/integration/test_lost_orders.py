"""A failover loses only orders that no replica had, and a reconciliation names exactly these."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster_set import ClusterSet
from hosted_server import HostedServer
from integration.scene import ids
from redis.asyncio import Redis
from sentinel_set import SentinelSet
from servers.kinds import KINDS
from support import Cli, eventually

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

KIND = KINDS[0]


@dataclass(frozen=True)
class Failing:
    """Servers whose primary is going to fail.

    Attributes:
        owned: the partitions of that primary.
        replicated: waits until the replicas are up to date.
        replaced: waits until another server is the primary.
    """

    url: str
    layout: Layout
    primary: HostedServer
    owned: Sequence[str]
    replicated: Callable[[], Awaitable[None]]
    replaced: Callable[[], Awaitable[object]]


@asynccontextmanager
async def sentinels(folder: Path, queue: str) -> AsyncIterator[Failing]:
    with SentinelSet.open(KIND, folder) as watched:
        await watched.become_ready()
        primary = await watched.primary()
        yield Failing(
            watched.url(), Layout(queue), primary, [queue], watched.replicate, lambda: watched.await_other_than(primary)
        )


@asynccontextmanager
async def cluster(folder: Path, queue: str) -> AsyncIterator[Failing]:
    layout = Layout(queue, 6)
    with ClusterSet.open(KIND, folder) as nodes:
        await nodes.become_ready()
        owners = {each: await nodes.owner(Keys.of(each).stream) for each in layout.current}
        primary = owners[layout.current[0]]
        yield Failing(
            nodes.url(),
            layout,
            primary,
            [each for each, owner in owners.items() if owner is primary],
            nodes.replicate,
            lambda: nodes.await_other_than(primary, Keys.of(layout.current[0]).stream),
        )


async def lose_replica(primary: HostedServer) -> None:
    """Replicas of this server cannot connect any more. Connections of others remain."""
    async with Redis.from_url(primary.url) as client:
        await client.config_set("requirepass", "another")
        await client.execute_command("CLIENT", "KILL", "TYPE", "replica")  # type: ignore[no-untyped-call]

        async def is_alone() -> bool:
            return (await client.info("replication"))["connected_slaves"] == 0

        await eventually(is_alone)


@pytest.mark.parametrize("open_servers", [sentinels, cluster])
async def test_orders_that_no_replica_had_are_lost_and_a_reconciliation_names_exactly_these(
    open_servers: Callable[[Path, str], "AsyncIterator[Failing]"], tmp_path: Path, dsn: str, queue_name: str, cli: Cli
) -> None:
    kept, late = ids(300)[:200], ids(300)[200:]
    accepted, missing = tmp_path / "accepted.txt", tmp_path / "missing.txt"
    async with open_servers(tmp_path, queue_name) as failing:  # type: ignore[attr-defined]
        partitions = failing.layout.partitions
        async with Producer.connect(failing.url, queue_name, partitions=partitions) as producer:
            await producer.enqueue(kept)
            await failing.replicated()
            await lose_replica(failing.primary)
            await producer.enqueue(late)
            failing.primary.kill()
            await failing.replaced()

        accepted.write_text("\n".join([*kept, *late]) + "\n")
        env = {"INGEST_REDIS_URL": failing.url, "INGEST_STREAM": queue_name, "INGEST_POSTGRES_DSN": dsn}
        done = await asyncio.to_thread(
            cli.run, "reconcile", "--file", str(accepted), "--missing", str(missing), "--json", env=env
        )

    lost = [order_id for order_id in late if failing.layout.queue_of_order(order_id) in failing.owned]
    assert sorted(missing.read_text().split()) == sorted(lost), done.stderr
    assert (done.returncode, json.loads(done.stdout)["lost"]["count"]) == (1, len(lost))
    assert 0 < len(lost) <= len(late)


@pytest.mark.parametrize("open_servers", [sentinels, cluster])
async def test_orders_that_are_confirmed_by_replicas_survive_and_others_are_not_confirmed(
    open_servers: Callable[[Path, str], "AsyncIterator[Failing]"], tmp_path: Path, queue_name: str
) -> None:
    order_ids, durability = ids(300), Durability.REPLICATED
    async with open_servers(tmp_path, queue_name) as failing:  # type: ignore[attr-defined]
        layout, queue = failing.layout, failing.owned[0]
        late = next(order_id for order_id in ids(900)[300:] if layout.queue_of_order(order_id) == queue)
        async with (
            Producer.connect(failing.url, queue_name, partitions=layout.partitions, durability=durability) as producer,
            Redis.from_url(failing.primary.url) as former,
        ):
            await producer.enqueue(order_ids)
            length = await former.xlen(Keys.of(queue).stream)
            await lose_replica(failing.primary)
            calling = asyncio.create_task(producer.enqueue(late))

            async def is_added() -> bool:
                return await former.xlen(Keys.of(queue).stream) > length

            await eventually(is_added)
            failing.primary.kill()
            await failing.replaced()
            assert not calling.done()
            calling.cancel()

        async with control_client(failing.url) as client:
            found = [await client.xrange(Keys.of(each).stream) for each in layout.queues]

    kept = {fields[b"order_id"].decode() for entries in found for _, fields in entries}
    assert kept - {late} == set(order_ids)
