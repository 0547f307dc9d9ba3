"""`ingest doctor` and the metrics on a cluster and on a Sentinel set, in order and with a fault."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cluster_set import ClusterSet
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from redis.asyncio import Redis
from sentinel_set import SentinelSet
from servers.kinds import KINDS
from set_ups import SetUp, database
from support import eventually

from ingest.domain.operating.source_state import State
from ingest.domain.partitions import Layout
from ingest.domain.redis_urls.sentinel_url import parse_sentinel_url
from ingest.domain.source_name import UNNAMED
from ingest.lab.servers import EmbeddedServers
from ingest.operations.backends import Backends
from ingest.operations.doctor.finding import Area, Finding, Level
from ingest.operations.state.status import read_status
from ingest.probes.metrics_page import reading_queues
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.inspection.sentinels import inspect_sentinels
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key
from ingest.queue.redis.connection import control_client
from ingest.settings import load_settings


@pytest.fixture(scope="module")
def dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    with database(own_servers) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSet]:
    folder = tmp_path_factory.mktemp("cluster")
    with ClusterSet.open(KINDS[0], folder, replicas=0, appendonly="yes") as cluster:
        asyncio.run(cluster.become_ready())
        yield cluster


@pytest.fixture
async def set_up(cluster: ClusterSet, dsn: str, queue_name: str) -> AsyncIterator[SetUp]:
    async with SetUp.sound(cluster.url(), dsn, queue_name) as set_up:
        yield set_up


def problems(found: list[Finding]) -> list[str]:
    """The errors and warnings about Redis."""
    return [finding.what for finding in found if finding.area is Area.REDIS and finding.level is not Level.OK]


async def test_each_node_of_a_cluster_is_examined(cluster: ClusterSet, set_up: SetUp, queue_name: str) -> None:
    async with control_client(cluster.url()) as client:
        await LayoutRecord(client, queue_name, 6).read()

    found = await set_up.examined(partitions=6)

    texts = [finding.what for finding in found]
    for node in cluster.nodes:
        assert f"node {node.address}: all commands of a worker are permitted" in texts
        assert f"node {node.address}: has no replica. If it fails, its partitions wait until it returns" in texts
    assert "3 primaries serve all 16,384 slots" in texts
    assert any(text.startswith(f"the queue {queue_name} has 6 partitions: ") for text in texts)
    assert len(problems(found)) == 3, problems(found)


async def test_a_fault_of_one_node_is_reported_for_that_node(
    cluster: ClusterSet, set_up: SetUp, queue_name: str
) -> None:
    node = await cluster.owner(Keys.of(queue_name).stream)
    async with Redis(host=node.host, port=node.port, password=node.password) as client:
        await client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            errors = [finding.what for finding in await set_up.examined() if finding.level is Level.ERROR]
        finally:
            await client.config_set("maxmemory-policy", "noeviction")

    assert errors == [f"node {node.address}: maxmemory-policy is allkeys-lru: Redis may delete the queue itself"]


async def test_a_change_of_partitions_another_setting_and_a_partition_that_is_not_recorded_are_reported(
    cluster: ClusterSet, set_up: SetUp, queue_name: str
) -> None:
    async with control_client(cluster.url()) as client:
        record = LayoutRecord(client, queue_name, 3)
        await record.read()
        await record.write(Layout(queue_name, 2, (3,), 2))
        await client.xadd(Keys.of(f"{queue_name}:5").stream, {"order_id": "a"})

        found = await set_up.examined(partitions=4)
        await client.delete(Keys.of(f"{queue_name}:5").stream)

    left = [text for text in problems(found) if "replica" not in text]
    unrecorded, *warnings = left  # errors first
    assert warnings == [
        f"the queue {queue_name} still changes from 3 to 2 partitions",
        f"the queue {queue_name} has 2 partitions, and the setting is 4, which is ignored",
    ]
    assert unrecorded.startswith(f"the partition {queue_name}:5 is not recorded, so that no worker reads it")
    assert unrecorded.endswith("1 waiting, 0 pending, 0 retries and 0 dead letters")


async def test_the_metrics_name_the_owner_and_the_backlog_of_each_partition(
    cluster: ClusterSet, queue_name: str
) -> None:
    layout = Layout(queue_name, 6, (1,), 2)
    settings = load_settings(redis_url=SecretStr(cluster.url()), stream=queue_name)
    async with control_client(cluster.url()) as client, reading_queues(settings, lambda: [UNNAMED]) as queues:
        record = LayoutRecord(client, queue_name, 6)
        await record.read()
        await record.write(layout)
        for queue in layout.queues:
            await client.xadd(Keys.of(queue).stream, {"order_id": "a"})
        registry = CollectorRegistry()
        for collector in await queues():
            registry.register(collector)

    owners = {
        sample.labels["partition"]: sample.labels["node"]
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "ingest_partition_owner"
    }
    names = {queue.removeprefix(queue_name).removeprefix(":"): queue for queue in layout.queues}
    assert owners == {name: (await cluster.owner(Keys.of(queue).stream)).address for name, queue in names.items()}
    assert len(set(owners.values())) > 1
    depths = [registry.get_sample_value("ingest_partition_depth", {"source": "", "partition": name}) for name in names]
    assert depths == [1.0] * 7
    assert registry.get_sample_value("ingest_queue_depth", {"source": "", "stream": queue_name}) == 7.0


async def test_the_status_shows_the_other_partitions_while_a_node_is_down(
    tmp_path: Path, dsn: str, queue_name: str
) -> None:
    with ClusterSet.open(
        KINDS[0], tmp_path, replicas=0, cluster_require_full_coverage="no", cluster_node_timeout="500"
    ) as cluster:
        await cluster.become_ready()
        layout = Layout(queue_name, 6, (), 1)
        async with control_client(cluster.url()) as client:
            await LayoutRecord(client, queue_name, 6).read()
            for queue in layout.queues:
                await client.xadd(Keys.of(queue).stream, {"order_id": "a"})
        record = await cluster.owner(layout_key(queue_name))
        owners = {queue: await cluster.owner(Keys.of(queue).stream) for queue in layout.queues}
        victim = next(node for node in cluster.nodes if node is not record and node in owners.values())
        victim.kill()

        [status] = await read_status([Backends(cluster.url(), dsn, queue_name)])

    left = {queue for queue, node in owners.items() if node is not victim}
    assert status.queue is None
    unavailable = {reason.server for reason in status.condition.reasons if reason.state is State.QUEUE_UNAVAILABLE}
    assert unavailable == {f"redis 127.0.0.1:{victim.port}"}
    assert {queue: state.depth for queue, state in status.partitions.items()} == dict.fromkeys(left, 1)
    assert status.consumers == []


async def test_a_sentinel_that_does_not_respond_and_a_missing_quorum_are_reported(
    tmp_path: Path, dsn: str, queue_name: str
) -> None:
    with SentinelSet.open(KINDS[0], tmp_path, appendonly="yes") as servers:
        await servers.become_ready()
        async with SetUp.sound(servers.url(), dsn, queue_name) as set_up:
            in_order = await set_up.examined()
            for sentinel in servers.sentinels:
                async with Redis(host=sentinel.host, port=sentinel.port, password=sentinel.password) as client:
                    rules = ("reset", "on", ">limited", "-@all", "+hello", "+auth", "+sentinel|get-master-addr-by-name")
                    await client.execute_command("ACL", "SETUSER", "limited", *rules)  # type: ignore[no-untyped-call]
            limited = servers.url().partition("?")[0] + "?sentinel_username=limited&sentinel_password=limited"
            with_less_rights = await set_up.examined(redis_url=limited)
            first, second, _ = servers.sentinels
            first.kill()
            second.kill()
            await eventually(lambda: has_no_quorum(servers))

            found = await set_up.examined()

    assert problems(in_order) == []
    assert "3 of 3 Sentinels respond, and the quorum of 2 is reached" in [finding.what for finding in in_order]
    assert problems(with_less_rights) == [
        "the user of the Sentinels may only read the address of the primary: quorum and replicas are unknown"
    ]
    silent = [text for text in problems(found) if text.startswith("Sentinel ")]
    assert len(silent) == 2, problems(found)
    assert any(text.startswith("the Sentinels cannot replace the primary: NOQUORUM") for text in problems(found))


async def test_a_primary_that_needs_its_only_replica_is_reported(tmp_path: Path, dsn: str, queue_name: str) -> None:
    with SentinelSet.open(KINDS[0], tmp_path, appendonly="yes", min_replicas_to_write="1") as servers:
        await servers.become_ready()
        async with SetUp.sound(servers.url(), dsn, queue_name) as set_up:
            found = await set_up.examined()

    [problem] = problems(found)
    assert problem.startswith("its only replica, once promoted, rejects orders until this server is back")


async def has_no_quorum(servers: SentinelSet) -> bool:
    return any(each.no_quorum for each in await inspect_sentinels(parse_sentinel_url(servers.url())))
