"""Inspects every server at a URL: one Redis, the primary of a Sentinel set with its Sentinels, or the nodes of a cluster. Changes nothing."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import QueueUnavailable
from ingest.domain.partitions import Layout
from ingest.domain.redis_urls.cluster_url import is_cluster_url
from ingest.domain.redis_urls.sentinel_url import is_sentinel_url, parse_sentinel_url
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.inspection.facts import RedisFacts
from ingest.queue.operate.inspection.sentinels import SentinelFacts, inspect_sentinels
from ingest.queue.operate.inspection.server import inspect
from ingest.queue.operate.partition_troubles import read_troubles
from ingest.queue.operate.queue_states import read_states
from ingest.queue.partitions.layout_record import layout_key, read_layouts
from ingest.queue.redis.connection import control_client, translated
from ingest.queue.redis.topology import Topology, topology_of


@dataclass(frozen=True, slots=True)
class ServersFacts:
    """The properties of the servers.

    Attributes:
        servers: each primary by its address, or the reason why it cannot be used.
        is_cluster: whether they are nodes of a cluster.
        layouts: the partitions of each queue.
        owners: the address of the server of each partition, as far as it is known, by the name of its queue.
        states: the state of each partition that can be read, likewise.
        troubles: of partitions.
        sentinels: of a Sentinel set.
    """

    servers: Mapping[str, RedisFacts | QueueUnavailable]
    is_cluster: bool = False
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, QueueState] = field(default_factory=dict)
    troubles: Sequence[PartitionTrouble] = ()
    sentinels: Sequence[SentinelFacts] = ()

    def newest(self, queue: str) -> str | None:
        """The order announced last that is still in one of the inspected partitions of a queue."""
        known = [each.newest for each in self.servers.values() if isinstance(each, RedisFacts)]
        partitions = self.layouts[queue].queues if queue in self.layouts else (queue,)
        return next((order for newest in known for each in partitions if (order := newest.get(each))), None)


async def inspect_servers(url: str, queues: Mapping[str, str], group: str, within: float = 5.0) -> ServersFacts:
    """Look at all servers, and on each at one partition of each queue.

    Args:
        url: of Redis.
        queues: names of whole queues, each with the name of its quota.
        group: the consumer group.
        within: seconds for the inspection of each server.

    Raises:
        QueueUnavailable: no server can be reached.
    """
    topology = topology_of(url)
    sentinels = asyncio.create_task(_sentinels(url))
    try:
        with translated():
            primaries = {await server.current_address(): server for server in await topology.primaries()}
        layouts, problem = await _layouts(topology, queues)
        if problem is not None and len(primaries) == 1:
            return ServersFacts(dict.fromkeys(primaries, problem), is_cluster_url(url), sentinels=await sentinels)
        partitions = [queue for layout in layouts.values() for queue in layout.queues]
        owners = await owners_of(topology, partitions)
        keys = [layout_key(queue) for queue in queues]
        inspected, (states, troubles) = await asyncio.gather(
            asyncio.gather(
                *(
                    _inspected(
                        inspect(
                            server,
                            _examples(address, layouts, owners, queues),
                            group,
                            keys,
                            is_node=is_cluster_url(url),
                        ),
                        within,
                    )
                    for address, server in primaries.items()
                )
            ),
            _states(topology, layouts.values(), group),
        )
        found = dict(zip(primaries, inspected, strict=True))
        return ServersFacts(found, is_cluster_url(url), layouts, owners, states, troubles, await sentinels)
    finally:
        sentinels.cancel()


async def _sentinels(url: str) -> Sequence[SentinelFacts]:
    return await inspect_sentinels(parse_sentinel_url(url)) if is_sentinel_url(url) else ()


async def _layouts(
    topology: Topology, queues: Mapping[str, str]
) -> tuple[Mapping[str, Layout], QueueUnavailable | None]:
    """The partitions, or a single one of each queue with the reason why no server can be used."""
    async with control_client(topology) as client:
        try:
            return await read_layouts(client, dict.fromkeys(queues, 1)), None
        except QueueUnavailable as error:
            single = {queue: Layout(queue) for queue in queues}
            # The inspection explains the rejections of a server.
            return single, None if isinstance(error.__cause__, ResponseError) else error


async def owners_of(topology: Topology, queues: Iterable[str]) -> Mapping[str, str]:
    """Return the address of the server that owns each queue, without the queues whose server is unknown at the moment."""
    owners = {}
    for queue in queues:
        try:
            with translated():
                server = await topology.server_of(Keys.of(queue).stream)
                owners[queue] = await server.current_address()
        except QueueUnavailable:
            continue
    return owners


async def _states(
    topology: Topology, layouts: Iterable[Layout], group: str
) -> tuple[Mapping[str, QueueState], Sequence[PartitionTrouble]]:
    """The states of the partitions that can be read, and the troubles of partitions. The inspection reports other problems."""
    known: dict[str, QueueState] = {}
    troubles: list[PartitionTrouble] = []
    async with control_client(topology) as client:
        for layout in layouts:
            try:
                states = dict(zip(layout.queues, await read_states(client, layout.queues, group), strict=True))
            except QueueUnavailable:
                continue
            known |= {queue: state for queue, state in states.items() if isinstance(state, QueueState)}
            troubles += await read_troubles(client, group, states)
    return known, troubles


def _examples(
    address: str, layouts: Mapping[str, Layout], owners: Mapping[str, str], quotas: Mapping[str, str]
) -> Mapping[str, str]:
    """One partition of each queue on a server, with the name of its quota."""
    owned = (
        (layout.queue, [each for each in layout.queues if owners.get(each) == address]) for layout in layouts.values()
    )
    return {partitions[0]: quotas[queue] for queue, partitions in owned if partitions}


async def _inspected(inspection: Awaitable[RedisFacts], within: float) -> RedisFacts | QueueUnavailable:
    try:
        async with asyncio.timeout(within):
            return await inspection
    except QueueUnavailable as error:
        return error
    except TimeoutError:
        return QueueUnavailable(f"the inspection was not complete within {within:g} s")
