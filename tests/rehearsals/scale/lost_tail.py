"""Measures how many confirmed orders a failover loses, by durability: `make lost-tail`. Needs root on Linux.

Many tasks enqueue single orders while the primary of a queue fails in several ways. No worker runs, so that afterwards each order that is
neither in the queue nor unconfirmed was lost.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster_nodes import ask
from cluster_set import ClusterSet
from hosted_server import HostedServer
from node_network import NodeNetwork
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sentinel_set import SentinelSet
from servers.kinds import KINDS, Kind
from support import eventually

from ingest.bench.machine import Machine
from ingest.bench.trial import report_progress
from ingest.domain.deliveries.accepted import Durability
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

QUEUE = "orders"
PARTITIONS = {"sentinel": 1, "cluster": 6}
# Seconds of load before the failure by default, and after the new primary has accepted orders.
_BEFORE, _AFTER = 2.0, 1.0
_LATEST = 1_000
# Seconds for which a primary is without its replica before it is killed.
_BEHIND = 1.0
# Seconds for which a primary is cut off.
_CUT_OFF = 15.0
# Seconds between two looks of a Sentinel at a server. The last look may have been that long ago.
_INFO_PERIOD = 10.0
# The primary accepts orders only while its replica is connected, and responds within ten seconds.
_MIN_REPLICAS = {"min_replicas_to_write": "1", "min_replicas_max_lag": "10"}


@dataclass(frozen=True)
class Servers:
    """A set of servers, and the primary that is going to fail.

    Attributes:
        url: where clients connect.
        primary: of the queues that are compared.
        hosts: addresses of all other servers.
        replaced: waits until another server is the primary.
        fail_over: exchanges it for its replica, like an operator.
        fail_over_carefully: the same, while the primary rejects writes without all of its replicas.
        queues: partitions that the primary owns.
    """

    url: str
    primary: HostedServer
    hosts: list[str]
    replaced: Callable[[], Awaitable[object]]
    fail_over: Callable[[], Awaitable[object]]
    fail_over_carefully: Callable[[], Awaitable[object]]
    queues: list[str]


@dataclass(frozen=True)
class Load:
    """The producers.

    Attributes:
        tasks: enqueue single orders.
        before: seconds of load before the failure.
    """

    tasks: int
    before: float


@dataclass
class Confirmed:
    """Orders whose enqueueing was confirmed.

    Attributes:
        times: when, by order ID.
    """

    times: dict[str, float] = field(default_factory=dict)
    numbers: "count[int]" = field(default_factory=count)

    async def enqueue(self, producer: Producer) -> None:
        """Enqueue one order after the other."""
        while True:
            order_id = f"order-{next(self.numbers)}"
            await producer.enqueue(order_id)
            self.times[order_id] = time.monotonic()

    async def is_after(self, moment: float, layout: Layout, queues: Container[str]) -> bool:
        """Whether an order of these queues was confirmed after a time."""
        latest = list(self.times.items())[-_LATEST:]
        return any(at > moment and layout.queue_of_order(order_id) in queues for order_id, at in latest)


@dataclass(frozen=True)
class Result:
    """One measurement.

    Attributes:
        confirmed: orders of the primary that were confirmed before the failure.
        lost: of all confirmed orders.
        tail: seconds from the confirmation of the first lost order to the last one.
        paused: the longest time without a confirmation, in seconds.
    """

    topology: str
    failure: str
    durability: Durability
    rate: float
    lost: int
    tail: float
    paused: float

    def row(self) -> str:
        """A line of a table."""
        return (
            f"| {self.topology} | {self.failure} | {self.durability} | {self.rate:,.0f} | {self.lost:,} | "
            f"{self.tail:.2f} s | {self.paused:.1f} s |"
        )


@asynccontextmanager
async def sentinel_set(kind: Kind, folder: Path, network: NodeNetwork, **options: str) -> AsyncIterator[Servers]:
    """A primary and a replica with three Sentinels."""
    with SentinelSet.open(kind, folder, network=network, **options) as watched:
        await watched.become_ready()
        primary = await watched.primary()
        others = [each for each in (*watched.servers, *watched.sentinels) if each is not primary]

        def at_default_intervals(fail_over: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            async def fail_over_so() -> None:
                await watched.look_seldom()
                await asyncio.sleep(_INFO_PERIOD)
                await fail_over()

            return fail_over_so

        yield Servers(
            watched.url(),
            primary,
            [each.host for each in others],
            lambda: watched.await_other_than(primary),
            at_default_intervals(watched.fail_over),
            at_default_intervals(watched.fail_over_carefully),
            [QUEUE],
        )


@asynccontextmanager
async def cluster_set(kind: Kind, folder: Path, network: NodeNetwork, **options: str) -> AsyncIterator[Servers]:
    """Three primaries with a replica each."""
    with ClusterSet.open(kind, folder, network=network, **options) as cluster:
        await cluster.become_ready()
        layout = Layout(QUEUE, PARTITIONS["cluster"])
        owners = {queue: await cluster.owner(Keys.of(queue).stream) for queue in layout.current}
        primary = owners[layout.current[0]]

        async def fail_over() -> None:
            [replica] = await cluster.replicas_of(primary)
            await ask(replica, "CLUSTER", "FAILOVER")

        yield Servers(
            cluster.url(),
            primary,
            [each.host for each in cluster.nodes if each is not primary],
            lambda: cluster.await_other_than(primary, Keys.of(layout.current[0]).stream),
            fail_over,
            fail_over,  # which pauses clients by itself
            [queue for queue, owner in owners.items() if owner is primary],
        )


SETS = {"sentinel": sentinel_set, "cluster": cluster_set}


async def killed(servers: Servers, network: NodeNetwork) -> None:
    """Its replica has received everything that it has sent."""
    del network
    await asyncio.to_thread(servers.primary.kill)
    await returned(servers)


async def follows(former: HostedServer) -> None:
    """Wait until a former primary is a connected replica."""

    async def is_connected() -> bool:
        with suppress(RedisError, OSError):
            async with Redis.from_url(former.url) as client:
                return (await client.info("replication")).get("master_link_status") == "up"
        return False

    await eventually(is_connected, within=30)


async def returned(servers: Servers) -> None:
    """Start a killed primary when it has been replaced. It becomes a replica."""
    await servers.replaced()
    await asyncio.to_thread(servers.primary.start)
    await follows(servers.primary)


async def killed_behind(servers: Servers, network: NodeNetwork) -> None:
    """It was cut off from the others before, as by a failing network card."""
    network.cut([servers.primary.host], servers.hosts)
    await asyncio.sleep(_BEHIND)
    await asyncio.to_thread(servers.primary.kill)
    network.heal()
    await returned(servers)


async def cut_off(servers: Servers, network: NodeNetwork) -> None:
    """It runs, and only producers reach it."""
    network.cut([servers.primary.host], servers.hosts)
    await asyncio.gather(servers.replaced(), asyncio.sleep(_CUT_OFF))
    network.heal()
    await follows(servers.primary)


async def failed_over(servers: Servers, network: NodeNetwork) -> None:
    """An operator exchanges the roles."""
    del network
    await servers.fail_over()
    await follows(servers.primary)


async def failed_over_carefully(servers: Servers, network: NodeNetwork) -> None:
    """An operator prepares the primary, and exchanges the roles."""
    del network
    await servers.fail_over_carefully()
    await follows(servers.primary)


FAILURES: dict[str, tuple[Callable[[Servers, NodeNetwork], Awaitable[None]], dict[str, str]]] = {
    "`kill -9`": (killed, {}),
    f"`kill -9`, replica {_BEHIND:g} s behind": (killed_behind, {}),
    f"cut off for {_CUT_OFF:g} s": (cut_off, {}),
    f"cut off for {_CUT_OFF:g} s, `min-replicas-to-write 1`": (cut_off, _MIN_REPLICAS),
    "planned failover": (failed_over, {}),
    "planned failover, `min-replicas-to-write 1`": (failed_over, _MIN_REPLICAS),
    "planned failover, `min-replicas-to-write` set at the primary only": (failed_over_carefully, {}),
}


async def measure(kind: Kind, topology: str, failure: str, durability: Durability, load: Load) -> Result:
    """Run one measurement with new servers."""
    fail, options = FAILURES[failure]
    is_synced = durability is Durability.FSYNC and not kind.is_redis_since(8)
    disk = {"appendonly": "yes", "appendfsync": "always" if is_synced else "everysec"}
    async with AsyncExitStack() as stack:
        network = stack.enter_context(NodeNetwork.open())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
        servers = await stack.enter_async_context(SETS[topology](kind, folder, network, **disk, **options))
        partitions, confirmed = PARTITIONS[topology], Confirmed()
        layout = Layout(QUEUE, partitions)
        async with Producer.connect(servers.url, QUEUE, partitions=partitions, durability=durability) as producer:
            running = [asyncio.create_task(confirmed.enqueue(producer)) for _ in range(load.tasks)]
            began = time.monotonic()
            await asyncio.sleep(load.before)
            failed_at = time.monotonic()
            await fail(servers, network)
            over_at = time.monotonic()
            await eventually(lambda: confirmed.is_after(over_at, layout, servers.queues), within=30)
            await asyncio.sleep(_AFTER)
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
            if errors := [each for each in ended if not isinstance(each, asyncio.CancelledError)]:
                raise AssertionError(f"{len(errors)} producers have failed") from errors[0]
        async with control_client(servers.url) as client:
            found = [await client.xrange(Keys.of(queue).stream) for queue in layout.current]
    kept = {fields[b"order_id"].decode() for entries in found for _, fields in entries}
    lost = sorted(at for order_id, at in confirmed.times.items() if order_id not in kept)
    own = sorted(at for order_id, at in confirmed.times.items() if layout.queue_of_order(order_id) in servers.queues)
    paused = max((later - at for at, later in pairwise(own)), default=0.0)
    rate = sum(at < failed_at for at in own) / (failed_at - began)
    return Result(topology, failure, durability, rate, len(lost), lost[-1] - lost[0] if lost else 0.0, paused)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make lost-tail", description=__doc__)
    parser.add_argument("--topology", choices=[*SETS], action="append")
    parser.add_argument("--durability", choices=[*Durability], action="append")
    parser.add_argument("--failure", type=int, choices=range(len(FAILURES)), action="append", help="number of a row")
    parser.add_argument("--server", choices=[kind.name for kind in KINDS], default=KINDS[0].name)
    parser.add_argument("--tasks", type=int, default=50, help="tasks that enqueue single orders")
    parser.add_argument("--before", type=float, default=_BEFORE, help="seconds of load before the failure")
    options = parser.parse_args()
    load = Load(options.tasks, options.before)
    kind = next(kind for kind in KINDS if kind.name == options.server)
    machine = Machine.here()
    failures = [[*FAILURES][number] for number in options.failure or range(len(FAILURES))]
    wanted = product(options.topology or SETS, failures, options.durability or Durability)
    rows = []
    for topology, failure, durability in wanted:
        result = asyncio.run(measure(kind, topology, failure, Durability(durability), load))
        report_progress(result.row())
        rows.append(result)
    table = "\n".join(result.row() for result in rows)
    head = "| topology | failure of the primary | `INGEST_DURABILITY` | confirmed/s | lost | tail | pause |"
    sys.stdout.write(f"{head}\n|---|---|---|---|---|---|---|\n{table}\n{kind.name}, {machine.sentence()}\n")
    is_kept = all(not result.lost for result in rows if result.durability is Durability.REPLICATED)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
