"""Why commands go to a cluster and to Sentinels by clients of our own. If a test about redis-py's fails, its client may suffice now."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_nodes import ClusterServer, ask
from cluster_set import ClusterSet
from redis.asyncio import RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError, RedisError  # noqa: A004  redis-py's own, which is no OSError
from sentinel_set import SERVICE, SentinelSet
from servers.kinds import KINDS
from support import eventually

from ingest.queue.redis.connection import control_client
from ingest.queue.redis.topology import topology_of

KEYS = [f"key-{number}" for number in range(12)]


@asynccontextmanager
async def redis_py_cluster(cluster: ClusterSet) -> AsyncIterator[RedisCluster]:
    """Only the caller repeats a command, because a read that was executed must not be sent again."""
    node, once = cluster.nodes[0], Retry(NoBackoff(), 0)
    async with RedisCluster(
        host="127.0.0.1", port=node.port, password=node.password, require_full_coverage=False, retry=once
    ) as client:
        yield client


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "redis-py"])
async def test_a_slot_without_an_owner_ends_no_read_at_another_node(*, is_ours: bool) -> None:
    options = {"cluster-require-full-coverage": "no"}
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        ClusterSet.open(KINDS[0], Path(folder), replicas=0, **options) as cluster,
    ):
        await cluster.become_ready()
        owners = {key: await cluster.owner(key) for key in KEYS}
        waiting, lost = KEYS[0], next(key for key in KEYS if owners[key] is not owners[KEYS[0]])
        async with control_client(cluster.url()) if is_ours else redis_py_cluster(cluster) as client:
            await client.ping()
            reading = asyncio.create_task(client.execute_command("BLPOP", waiting, 3))
            await eventually(lambda: is_read(owners[waiting]))
            for node in cluster.nodes:
                await ask(node, "CLUSTER", "DELSLOTS", key_slot(lost.encode()))

            with pytest.raises(RedisError):
                await client.get(lost)

            if is_ours:
                assert await reading is None
            else:
                with pytest.raises(ConnectionError):
                    await reading


async def is_read(node: ClusterServer) -> bool:
    return b"cmd=blpop" in await ask(node, "CLIENT", "LIST")


async def test_only_our_client_asks_the_majority_of_the_sentinels() -> None:
    with TemporaryDirectory(prefix="ingest-") as folder, SentinelSet.open(KINDS[0], Path(folder)) as watched:
        await watched.become_ready()
        primary = await watched.primary()
        last, *others = watched.sentinels
        for sentinel in others:
            sentinel.kill()

        theirs = Sentinel([("127.0.0.1", last.port)], sentinel_kwargs={"password": last.password})  # type: ignore[no-untyped-call]  # redis-py leaves it so

        async with theirs.sentinels[0]:
            assert await theirs.discover_master(SERVICE) == ("127.0.0.1", primary.port)
        topology = topology_of(watched.url())
        async with control_client(topology) as ours:
            await ours.ping()
            with pytest.raises(ConnectionError, match="fewer than 2 of 3 Sentinels confirm"):
                await topology.confirm()
