"""Which groups of routes the HTTP API has, and the connections that they need.

A new group is built in `groups`; what it needs besides is opened in `open_connections`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

from redis.asyncio import Redis

from ingest.api.announcing import Announcing
from ingest.api.health import Health
from ingest.api.requests import BodyLimits
from ingest.api.server import Group
from ingest.queue.connection import control_client, translated
from ingest.queue.producer import Producer
from ingest.settings import Settings
from ingest.telemetry.shared_metrics import Counter

# From where orders are announced, as metrics name it.
SOURCES = ("api",)


@dataclass(frozen=True, slots=True)
class Connections:
    """What routes work with; it connects when it is first used.

    Attributes:
        producer: takes orders into the queue.
        redis: for what is no announcement.
    """

    producer: Producer
    redis: Redis

    @classmethod
    def none(cls) -> Self:
        """Nothing: for routes that are described, and not called."""
        return cls(*(cast("Any", None),) * 2)


@asynccontextmanager
async def open_connections(settings: Settings) -> AsyncIterator[Connections]:
    """The connections of one process."""
    url = settings.redis_url.get_secret_value()
    async with (
        control_client(url) as redis,
        Producer.connect(url, settings.stream, backlog_limit=settings.backlog_limit) as producer,
    ):
        yield Connections(producer, redis)


def groups(settings: Settings, connections: Connections, accepted: Mapping[str, Counter]) -> list[Group]:
    """All groups of routes; building one uses no connection.

    Args:
        settings: of the API.
        connections: what the routes work with.
        accepted: count orders, by source.
    """
    limits = BodyLimits(settings.api_body_limit, settings.api_body_timeout)

    async def redis_answers() -> None:
        with translated():
            await connections.redis.ping()

    return [
        Health({"redis": redis_answers}),
        Announcing(connections.producer, limits, accepted["api"]),
    ]
