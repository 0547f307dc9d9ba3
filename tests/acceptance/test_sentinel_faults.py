"""The service under load while the servers that Sentinels watch fail, are cut off and restarted.

`make faults` runs 1,000 orders per second, six partitions, four worker processes and all faults, on each kind of server.
"""

import asyncio
import os
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from acceptance.disturbed_queue import DisturbedQueue
from node_network import NodeNetwork
from sentinel_set import SentinelSet
from servers.kinds import KINDS, Kind
from support import Cli

IS_FULL = os.environ.get("INGEST_TEST_FAULTS") == "full"
LOAD = {"partitions": 6, "rate": 1_000, "processes": 4} if IS_FULL else {"partitions": 2, "rate": 60, "processes": 2}
# Seconds without a stored order of a queue, after any fault.
LONGEST_PAUSE = 15.0


async def kill(watched: SentinelSet, backlog: AbstractAsyncContextManager[None]) -> None:
    """Kill the primary, and start it again as a replica of the promoted one."""
    primary = await watched.primary()
    async with backlog:
        primary.kill()
    await watched.await_other_than(primary)
    await watched.rejoin(primary)


async def cut_off(watched: SentinelSet, network: NodeNetwork) -> None:
    """Cut the primary off from the replica and the Sentinels, but not from the service, until it has been replaced."""
    primary = await watched.primary()
    others = [each.host for each in (*watched.servers, *watched.sentinels) if each is not primary]
    network.cut([primary.host], others)
    await watched.await_other_than(primary)
    network.heal()
    await watched.replicate()


async def restart_all(watched: SentinelSet) -> None:
    """Restart the Sentinels, the replica, and the primary after a failover, as in an upgrade."""
    for sentinel in watched.sentinels:
        await asyncio.to_thread(sentinel.restart)
    primary = await watched.primary()
    [replica] = [each for each in watched.servers if each is not primary]
    await watched.rejoin(replica)
    await watched.fail_over()
    await watched.rejoin(primary)


@pytest.mark.parametrize("kind", KINDS[: None if IS_FULL else 1], ids=lambda kind: kind.name)
@pytest.mark.timeout(900)
async def test_nothing_replicated_is_lost_and_orders_flow_within_seconds(kind: Kind, cli: Cli, tmp_path: Path) -> None:
    with ExitStack() as stack:
        network = stack.enter_context(NodeNetwork.open()) if IS_FULL else None
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
        options = {"min_replicas_to_write": "1", "min_replicas_max_lag": "2"}
        watched = stack.enter_context(SentinelSet.open(kind, folder, network=network, **options))
        await watched.become_ready()

        async with DisturbedQueue.open(cli, tmp_path, watched.url(), **LOAD) as disturbed:
            async with disturbed.disturbance("kill -9 of the primary", loses=True):
                await kill(watched, disturbed.backlog())
            if network is not None:
                async with disturbed.disturbance("the primary cut off", loses=True):
                    await cut_off(watched, network)
                async with disturbed.disturbance("restart of all servers", loses=True):
                    await restart_all(watched)

    found = await disturbed.findings()
    print(f"\n{kind.name}: {found}")  # noqa: T201  the figures of a full run
    assert not found.lost, found.lost[:20]
    assert not found.wrong, found.wrong[:20]
    assert found.longest_pause <= LONGEST_PAUSE, str(found)
