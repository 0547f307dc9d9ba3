"""A cluster whose nodes stay. Commands go to the nodes that own their keys, even while a slot moves."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from urllib.parse import quote

import pytest
from accounts import PASSWORD, rules_of
from cluster_nodes import ask
from cluster_set import ClusterSet
from cluster_slots import MovingSlot
from consumers import Consumer
from redis.exceptions import TryAgainError
from servers.kinds import KINDS, Kind
from tls import Certificates

from ingest.domain.errors import QueueUnavailable
from ingest.domain.redis_urls.cluster_url import parse_cluster_url
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.combined_calls import ClientRunner, CombinedCalls
from ingest.queue.redis.connection import QueueRefused, client_for, control_client, translated
from ingest.queue.redis.routed_connection import RoutedConnection, open_direct
from ingest.queue.redis.script_call import ScriptCall
from ingest.queue.redis.topology import topology_of
from ingest.queue.redis.topology.cluster import slot_of
from ingest.queue.redis.topology.slot_map import SlotMap

SPEAK_TLS = [kind for kind in KINDS if kind.speaks_tls]


@pytest.fixture
def cluster(kind: Kind, shared_cluster: Callable[[Kind], ClusterSet]) -> ClusterSet:
    return shared_cluster(kind)


@pytest.fixture
async def keys(cluster: ClusterSet, queue_name: str) -> AsyncIterator[Sequence[str]]:
    """Keys of several slots, which belong to all nodes."""
    keys = [f"ingest:{{{queue_name}:{number}}}:probe" for number in range(12)]
    yield keys
    async with control_client(cluster.url()) as client:
        for key in keys:
            await client.delete(key)


async def test_each_command_of_a_client_goes_to_the_owner_of_its_keys(cluster: ClusterSet, keys: Sequence[str]) -> None:
    async with control_client(cluster.url(hosts=cluster.nodes[0].address)) as client:
        for key in keys:
            await client.set(key, key)
        async with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.get(key)
            pipe.time()
            *found, (seconds, _) = await pipe.execute()
        script = client.register_script("return redis.call('GET', KEYS[1])")
        by_script = await asyncio.gather(*(script([key]) for key in keys))

        assert found == by_script == [key.encode() for key in keys]
        assert seconds > 0
        owners = {(await cluster.owner(key)).port for key in keys}
        assert owners == {(await (await client_for(client, key)).info())["tcp_port"] for key in keys}
        assert len(owners) == 3


async def test_all_primaries_of_a_cluster_are_returned_for_commands_about_servers(cluster: ClusterSet) -> None:
    topology = topology_of(cluster.url())

    ports = []
    for primary in await topology.primaries():
        async with control_client(primary) as client:
            ports.append((await client.info())["tcp_port"])

    assert sorted(ports) == sorted(node.port for node in await cluster.primaries())


async def test_a_client_of_an_owner_sends_commands_without_a_key_there(
    cluster: ClusterSet, keys: Sequence[str]
) -> None:
    topology = topology_of(cluster.url())
    for key in keys[:4]:
        async with control_client(topology.owner_of(key)) as client:
            assert (await client.info())["tcp_port"] == (await cluster.owner(key)).port


async def test_lookups_that_are_far_apart_are_not_delayed(cluster: ClusterSet) -> None:
    slots = SlotMap(parse_cluster_url(cluster.url()), uniform=lambda low, _: low)
    failed, *_ = await slots.primaries()
    slots.suspect(failed)
    for _ in range(6):
        await slots.primaries()

    await asyncio.sleep(0.6)  # longer than the longest pause
    began = monotonic()
    await slots.primaries()

    assert monotonic() - began < 0.3


async def test_scripts_that_nodes_have_forgotten_are_sent_again(cluster: ClusterSet, keys: Sequence[str]) -> None:
    async with control_client(cluster.url()) as client, open_direct(cluster.url(), 5.0) as line:
        script = client.register_script("return {KEYS[1], ARGV[1]}")
        calls = [ScriptCall(script, [key], ["a"]) for key in keys]
        wanted = [[key.encode(), b"a"] for key in keys]
        for run in (
            lambda: asyncio.gather(*(script([key], ["a"]) for key in keys)),
            lambda: line.run_all(calls),
            lambda: ClientRunner(client).run_all(calls),
        ):
            for node in cluster.running:
                await ask(node, "SCRIPT", "FLUSH")
            assert await run() == wanted


async def test_scripts_of_several_slots_run_together_and_fail_alone(cluster: ClusterSet, keys: Sequence[str]) -> None:
    async with control_client(cluster.url()) as client, open_direct(cluster.url(), 5.0) as line:
        assert isinstance(line, RoutedConnection)
        await client.hset(keys[0], "a", "b")
        script = client.register_script("return redis.call('GET', KEYS[1]) or ARGV[1]")

        found = await line.run_all([ScriptCall(script, [key], [number]) for number, key in enumerate(keys)])

    assert "WRONGTYPE" in str(found[0])
    assert found[1:] == [str(number).encode() for number in range(1, len(keys))]


async def test_calls_for_several_slots_get_their_own_replies(cluster: ClusterSet, keys: Sequence[str]) -> None:
    topology = topology_of(cluster.url())
    wanted = [100_000 * (1 + number // 2) for number in range(2 * len(keys))]
    async with control_client(topology) as client, open_direct(topology, 5.0) as line:
        for runner in (ClientRunner(client), line):
            calls = CombinedCalls(client, runner, topology)
            await client.set(keys[0], "no hash")

            found = await asyncio.gather(
                *(calls.call("quota_pause", [keys[number // 2]], [each]) for number, each in enumerate(wanted)),
                return_exceptions=True,
            )

            assert ["WRONGTYPE" in str(each) for each in found[:2]] == [True, True]
            assert found[2:] == wanted[2:]
            for key in keys:
                await client.delete(key)


async def test_a_slot_in_migration_is_served_by_both_nodes_and_then_by_its_new_owner(
    cluster: ClusterSet, queue_name: str
) -> None:
    here, there = (f"ingest:{{{queue_name}}}:{name}" for name in ("here", "there"))
    source = await cluster.owner(here)
    target = next(node for node in await cluster.primaries() if node is not source)
    async with control_client(cluster.url()) as client, open_direct(cluster.url(), 5.0) as line:
        assert await line.call("SET", here, "1")
        script = client.register_script("return redis.call('MGET', KEYS[1], KEYS[2])")
        moving = await MovingSlot.begin(cluster, slot_of(here), target)

        await client.set(there, "2")  # by ASK
        assert await line.call("GET", here) == await client.get(here) == b"1"
        assert await line.call("GET", there) == await client.get(there) == b"2"
        async with client.pipeline(transaction=False) as pipe:
            assert await pipe.get(here).get(there).execute() == [b"1", b"2"]
        [refused] = await line.run_all([ScriptCall(script, [here, there], [])])
        assert isinstance(refused, TryAgainError)
        with pytest.raises(QueueUnavailable), translated():  # TRYAGAIN
            await client.mget(here, there)

        await moving.finish()
        assert await line.run_all([ScriptCall(script, [here, there], [])]) == [[b"1", b"2"]]
        assert await client.mget(here, there) == [b"1", b"2"]
        assert (await (await client_for(client, here)).info())["tcp_port"] == target.port
        await client.delete(here, there)
    await (await MovingSlot.begin(cluster, slot_of(here), source)).finish()


async def test_a_wait_for_replicas_is_not_believed_after_its_write_was_redirected(
    cluster: ClusterSet, queue_name: str
) -> None:
    key = f"ingest:{{{queue_name}}}:probe"
    source = await cluster.owner(key)
    target = next(node for node in await cluster.primaries() if node is not source)
    async with control_client(cluster.url()) as client:
        await client.exists(key)
        await (await MovingSlot.begin(cluster, slot_of(key), target)).finish()

        async with client.pipeline(transaction=False) as pipe:
            pipe.set(key, "1")
            pipe.wait(1, 1000)
            written, waited = await pipe.execute(raise_on_error=False)

        assert written is True
        with pytest.raises(QueueUnavailable), translated():
            raise waited
        await client.delete(key)
    await (await MovingSlot.begin(cluster, slot_of(key), source)).finish()


@pytest.mark.each_server
async def test_an_error_of_access_names_the_node(cluster: ClusterSet, keys: Sequence[str]) -> None:
    [first, *others] = await cluster.primaries()
    url = cluster.url().replace("://:", "://only-there:")
    rules = ("reset", "on", f">{first.password}", "~*", "+@all")
    for node in cluster.running:
        await ask(node, "ACL", "SETUSER", "only-there", *rules)
    try:
        async with control_client(url) as client:
            for key in keys:
                assert await client.exists(key) == 0
        await ask(others[0], "ACL", "DELUSER", "only-there")
        async with control_client(url) as client:
            for key in keys:
                if await cluster.owner(key) is others[0]:
                    with pytest.raises(QueueRefused, match=f"node 127.0.0.1:{others[0].port}"), translated():
                        await client.exists(key)
                else:
                    assert await client.exists(key) == 0
    finally:
        for node in cluster.running:
            await ask(node, "ACL", "DELUSER", "only-there")


@pytest.mark.each_server
async def test_the_rights_of_a_worker_suffice_in_a_cluster(cluster: ClusterSet, kind: Kind) -> None:
    rules = rules_of("ingest", PASSWORD, knows_setinfo=kind.knows_setinfo)
    for node in cluster.running:
        await ask(node, "ACL", "SETUSER", "ingest", "reset", *rules)
    url = f"redis+cluster://ingest:{quote(PASSWORD, safe='')}@{cluster.hosts}"
    queue = "orders/acl"
    probe = Keys.of(queue, "ingest").probe
    try:
        async with (
            Consumer.open(url, queue, "ingest", "one", 1.0) as consumer,
            Producer.connect(url, queue) as producer,
        ):
            await consumer.ensure_group()
            await producer.enqueue(["a"])
            [delivery] = await consumer.read(1, 1.0)
            await consumer.ack([delivery.entry])
        source = await cluster.owner(probe)
        target = next(node for node in await cluster.primaries() if node is not source)
        async with control_client(url) as client:
            moving = await MovingSlot.begin(cluster, slot_of(probe), target)
            assert await client.exists(probe) == 0
            await moving.finish()
        await (await MovingSlot.begin(cluster, slot_of(probe), source)).finish()
    finally:
        for node in cluster.running:
            await ask(node, "ACL", "DELUSER", "ingest")
        async with control_client(cluster.url()) as client:
            await client.delete(*await (await client_for(client, f"{{{queue}}}")).keys(f"ingest:{{{queue}}}:*"))


async def test_a_url_of_another_kind_of_server_is_reported(
    cluster: ClusterSet, redis_url: str, keys: Sequence[str]
) -> None:
    async with control_client(redis_url.replace("redis://", "redis+cluster://")) as client:
        with pytest.raises(QueueRefused, match="not a node of a cluster"), translated():
            await client.get(keys[0])
    owner = await cluster.owner(keys[0])
    [other, _] = [node for node in await cluster.primaries() if node is not owner]
    async with control_client(other.url) as client:
        with pytest.raises(QueueRefused, match=r"write redis\+cluster://"), translated():
            await client.get(keys[0])


# -- other addresses ------------------------------------------------------------------------------------------


async def is_served(url: str, keys: int) -> bool:
    async with control_client(url) as client, open_direct(url, 5.0) as line:
        for number in range(keys):
            await client.set(f"key-{number}", number)
        return [await line.call("GET", f"key-{number}") for number in range(keys)] == [
            str(number).encode() for number in range(keys)
        ]


async def test_nodes_are_reached_at_the_address_of_the_endpoint_if_they_report_none(kind: Kind) -> None:
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        ClusterSet.open(
            kind, Path(folder), primaries=1, replicas=0, cluster_preferred_endpoint_type="unknown-endpoint"
        ) as cluster,
    ):
        await cluster.become_ready()
        assert await is_served(cluster.url(hosts=f"localhost:{cluster.nodes[0].port}"), 3)


async def test_nodes_may_have_ipv6_addresses() -> None:
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        ClusterSet.open(KINDS[0], Path(folder), primaries=2, replicas=0, bind="::1") as cluster,
    ):
        await cluster.become_ready()
        assert await is_served(cluster.url(), 12)


@pytest.mark.parametrize("kind", SPEAK_TLS, ids=[kind.name for kind in SPEAK_TLS])
async def test_nodes_may_speak_tls_and_report_their_names(kind: Kind) -> None:
    with TemporaryDirectory(prefix="ingest-") as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101  the servers' user reads the certificates
        certificates = Certificates(Path(folder) / "certificates")
        options = {
            **certificates.server_options(),
            "tls_cluster": "yes",
            "cluster_announce_hostname": "localhost",
            "cluster_preferred_endpoint_type": "hostname",
        }
        with ClusterSet.open(kind, Path(folder), primaries=2, replicas=0, **options) as cluster:
            await cluster.become_ready()
            url = cluster.url(hosts=f"localhost:{cluster.nodes[0].tls_port}").replace("redis+", "rediss+")

            assert await is_served(f"{url}?ssl_ca_certs={certificates.ca}", 12)
            async with control_client(url) as client:
                with pytest.raises(QueueUnavailable, match="certificate verify failed"), translated():
                    await client.get("key-1")


async def test_a_slow_node_delays_combined_calls_for_its_own_keys_only(
    cluster: ClusterSet, keys: Sequence[str]
) -> None:
    topology = topology_of(cluster.url())
    async with (
        control_client(topology) as client,
        open_direct(topology, 30.0) as line,
    ):
        calls = CombinedCalls(client, line, topology)

        async def call(key: str) -> int:
            return int(await calls.call("quota_pause", [key], [60_000]))

        await asyncio.gather(*map(call, keys))
        slow = await cluster.owner(keys[0])
        others = [key for key in keys if await cluster.owner(key) is not slow]
        await ask(slow, "CLIENT", "PAUSE", 3_000, "ALL")
        waiting = asyncio.create_task(call(keys[0]))
        await asyncio.gather(*map(call, others))
        is_waiting = not waiting.done()

        assert is_waiting
        assert 0 < await waiting <= 60_000
        await calls.close()
