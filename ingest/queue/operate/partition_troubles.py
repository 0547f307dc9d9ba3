"""Reads the troubles of partitions, which worker processes report and readers notice, for all who show them."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from redis.asyncio import Redis

from ingest.domain.deliveries.partition_trouble import PartitionTrouble, by_queue
from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume import liveness
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import server_name, translated
from ingest.queue.redis.server_trouble import trouble_of


async def read_troubles(
    client: Redis, group: str, states: Mapping[str, QueueState | QueueUnavailable]
) -> Sequence[PartitionTrouble]:
    """Return the troubles of the partitions of one queue, by its name.

    Args:
        client: reads the reports.
        group: the consumer group.
        states: each partition, by the name of its queue, or the error of the attempt to read it.
    """
    if len(states) == 1:
        return []
    noticed = [
        noticed_trouble(client, queue, state) for queue, state in states.items() if isinstance(state, QueueUnavailable)
    ]
    readable = [queue for queue, state in states.items() if isinstance(state, QueueState)]
    # Each partition has the same reports. Any of them may not respond any more.
    reported = await asyncio.gather(*(_reported(client, Keys.of(queue, group).troubles) for queue in readable))
    found = by_queue(noticed, *reported)
    return [found[queue] for queue in states if queue in found]


def noticed_trouble(client: Redis, queue: str, error: QueueUnavailable) -> PartitionTrouble:
    """Return the trouble of a partition, or of a queue's record of partitions, by the error of an attempt to read it."""
    return PartitionTrouble(
        queue, server_name(client, Keys.of(queue).stream), trouble_of(error), str(error), time.time()
    )


async def _reported(client: Redis, key: str) -> list[PartitionTrouble]:
    try:
        with translated():
            return liveness.read_troubles(await client.get(key))
    except QueueUnavailable:
        return []
