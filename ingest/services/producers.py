"""Opens the producer of a queue with the configured durability."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from ingest.queue.produce.producer import Producer

if TYPE_CHECKING:
    from ingest.settings import Settings


def open_producer(settings: "Settings") -> AbstractAsyncContextManager[Producer]:
    """Open a producer with its own connections, which are opened when it is first used."""
    return Producer.connect(
        settings.redis_url.get_secret_value(),
        settings.stream,
        partitions=settings.partitions,
        backlog_limit=settings.backlog_limit,
        durability=settings.durability,
        replicas=settings.durability_replicas,
    )
