"""A cluster: commands go to the nodes that own their keys, also after a slot has moved."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from redis.asyncio import Redis
from servers.kinds import Kind
from support import eventually

from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port
from ingest.queue.redis.combined_calls import ClientRunner, CombinedCalls
from ingest.queue.redis.connection import control_client
from ingest.queue.redis.routed_connection import RoutedConnection, open_direct
from ingest.queue.redis.script_call import ScriptCall
from ingest.queue.redis.topology import topology_of
from ingest.queue.redis.topology.cluster import slot_of

_SHARES = [(0, 5460), (5461, 10922), (10923, 16383)]
KEYS = [f"ingest:{{orders:{number}}}:probe" for number in range(12)]


class Nodes:
    """Three primaries."""

    def __init__(self, servers: Sequence[ValkeyServer], buses: Sequence[int]) -> None:
        self.servers = servers
        self.buses = buses

    @property
    def url(self) -> str:
        """Where clients connect."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis+cluster://:{self.servers[0].password}@{hosts}"

    async def become_ready(self) -> None:
        """Divide the slots, and wait until every node accepts commands."""
        for server, (first, last) in zip(self.servers, _SHARES, strict=True):
            await ask(server, "CLUSTER", "ADDSLOTSRANGE", first, last)
            await ask(server, "CLUSTER", "MEET", "127.0.0.1", self.servers[0].port, self.buses[0])

        async def is_complete() -> bool:
            states = [await ask(server, "CLUSTER", "INFO") for server in self.servers]
            return all(b"cluster_state:ok" in state and b"cluster_known_nodes:3" in state for state in states)

        await eventually(is_complete, every=0.05)

    async def owner(self, key: str) -> ValkeyServer:
        """The server that owns a key."""
        for server in self.servers:
            async with Redis.from_url(server.url) as client:
                for line in (await client.execute_command("CLUSTER", "NODES")).decode().splitlines():
                    words = line.split()
                    ranges = [word.split("-") for word in words[8:] if not word.startswith("[")]
                    if "myself" in words[2] and any(int(a[0]) <= slot_of(key) <= int(a[-1]) for a in ranges):
                        return server
        raise AssertionError(f"no node owns {key}")

    async def assign(self, key: str, to: ValkeyServer) -> None:
        """Give the slot of a key, which has no keys, to another node."""
        identity = await ask(to, "CLUSTER", "MYID")
        for server in (to, *(each for each in self.servers if each is not to)):
            await ask(server, "CLUSTER", "SETSLOT", slot_of(key), "NODE", identity)


async def ask(server: ValkeyServer, *command: str | bytes | int) -> Any:
    async with Redis.from_url(server.url) as client:
        return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it so


@pytest.fixture
async def nodes(kind: Kind) -> AsyncIterator[Nodes]:
    password = secrets.token_urlsafe(18)
    with TemporaryDirectory(prefix="ingest-") as folder, ExitStack() as stack:
        servers, buses = [], [free_port() for _ in range(3)]
        for number, bus in enumerate(buses):
            options = {"cluster_enabled": "yes", "cluster_port": str(bus), "masterauth": password}
            server = kind.server(Path(folder) / str(number), **options)
            server.password = password
            servers.append(stack.enter_context(server))
        nodes = Nodes(servers, buses)
        await nodes.become_ready()
        yield nodes


async def test_each_command_of_a_client_goes_to_the_owner_of_its_keys(nodes: Nodes) -> None:
    async with control_client(nodes.url) as client:
        for key in KEYS:
            await client.set(key, key)
        async with client.pipeline(transaction=False) as pipe:
            for key in KEYS:
                pipe.get(key)
            pipe.time()
            *found, (seconds, _) = await pipe.execute()
        script = client.register_script("return redis.call('GET', KEYS[1])")
        by_script = await asyncio.gather(*(script([key]) for key in KEYS))

    assert found == by_script == [key.encode() for key in KEYS]
    assert seconds > 0
    assert len({(await nodes.owner(key)).port for key in KEYS}) == 3


async def test_a_slot_that_has_moved_is_followed_by_clients_and_connections(nodes: Nodes) -> None:
    key = KEYS[0]
    async with control_client(nodes.url) as client, open_direct(nodes.url, 5.0) as line:
        assert await client.exists(key) == await line.call("EXISTS", key) == 0
        former = await nodes.owner(key)
        await nodes.assign(key, next(server for server in nodes.servers if server is not former))

        assert await client.exists(key) == await line.call("EXISTS", key) == 0
        async with client.pipeline(transaction=False) as pipe:
            assert await pipe.exists(key).exists(KEYS[1]).execute() == [0, 0]


async def test_scripts_of_several_slots_run_together_and_fail_alone(nodes: Nodes) -> None:
    async with control_client(nodes.url) as client, open_direct(nodes.url, 5.0) as line:
        assert isinstance(line, RoutedConnection)
        await client.hset(KEYS[0], "a", "b")
        script = client.register_script("return redis.call('GET', KEYS[1]) or ARGV[1]")

        found = await line.run_all([ScriptCall(script, [key], [number]) for number, key in enumerate(KEYS)])

    assert "WRONGTYPE" in str(found[0])
    assert found[1:] == [str(number).encode() for number in range(1, len(KEYS))]


async def test_calls_for_several_slots_get_their_own_replies(nodes: Nodes) -> None:
    topology = topology_of(nodes.url)
    async with control_client(topology) as client, open_direct(topology, 5.0) as line:
        for runner in (ClientRunner(client), line):
            calls = CombinedCalls(client, runner, topology)
            wanted = [100_000 * (1 + number // 2) for number in range(2 * len(KEYS))]

            found = await asyncio.gather(
                *(calls.call("quota_pause", [KEYS[number // 2]], [each]) for number, each in enumerate(wanted))
            )

            assert found == wanted
            await client.delete(KEYS[0])
            for key in KEYS:
                await client.delete(key)
