"""The routes of the HTTP API, and the connections that they need.

`routes_of` builds them, and `open_connections` opens their connections.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self, cast

from redis.asyncio import Redis

from ingest.api.documentation.openapi import OpenApi, document_of
from ingest.api.health import Health
from ingest.api.http.body_memory import BodyMemory
from ingest.api.http.requests import BodyLimits
from ingest.api.http.routing import Route
from ingest.api.operations.dead_letter_routes import DeadLetterRoutes, refuse_to_wait
from ingest.api.operations.operations_routes import QueueRoutes, RetryRoutes
from ingest.api.orders.announcing import Announcing
from ingest.api.orders.idempotency import Idempotency
from ingest.api.orders.order_routes import OrderRoutes
from ingest.api.orders.pushing import Pushing
from ingest.api.orders.queueing import Queueing
from ingest.api.webhooks.load import load_sources
from ingest.api.webhooks.routes import WebhookRoutes
from ingest.api.webhooks.sources import WebhookSource
from ingest.operations.backends import Backends
from ingest.operations.orders import Orders
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.retries import Retries
from ingest.queue.produce.idempotent_calls import IdempotentCalls
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client, translated
from ingest.settings import Settings, load_settings
from ingest.sources.documents import decoder_of, mapping_of
from ingest.store.audit import AuditLog
from ingest.store.pool import Pool
from ingest.telemetry.shared_metrics import Counter

# Values of the label `origin` in metrics.
ORIGINS = ("api", "webhook")


@dataclass(frozen=True, slots=True)
class RouteConnections:
    """The connections of the routes, which are made when they are first used."""

    producer: Producer
    calls: IdempotentCalls
    redis: Redis
    orders: Orders
    monitor: Monitor
    retries: Retries
    dead_letters: DeadLetters
    audit_log: AuditLog

    @classmethod
    def none(cls) -> Self:
        """Return no connections, for routes that are described and not called."""
        return cls(*(cast("Any", None),) * 8)


@dataclass(frozen=True, slots=True)
class ReceivedWebhooks:
    """The received webhooks.

    Attributes:
        sources: the senders. Without one, there is no route.
        counters: by webhook and result.
    """

    sources: Sequence[WebhookSource] = ()
    counters: Mapping[tuple[str, str], Counter] = field(default_factory=dict)


def open_producer(settings: Settings) -> AbstractAsyncContextManager[Producer]:
    """Open a producer with the configured durability."""
    return Producer.connect(
        settings.redis_url.get_secret_value(),
        settings.stream,
        backlog_limit=settings.backlog_limit,
        durability=settings.durability,
        replicas=settings.durability_replicas,
    )


@asynccontextmanager
async def open_connections(settings: Settings) -> AsyncIterator[RouteConnections]:
    """Open the connections of one process."""
    servers = Backends.of(settings)
    async with (
        control_client(servers.redis_url) as redis,
        open_producer(settings) as producer,
        Orders.open(servers) as orders,
        Pool.open(servers.postgres_dsn, size=2) as pool,
    ):
        yield RouteConnections(
            producer,
            IdempotentCalls(redis, servers.stream),
            redis,
            orders,
            Monitor(redis, servers.stream, servers.group),
            Retries(redis, servers.stream, servers.group),
            DeadLetters(redis, servers.stream, group=servers.group, on_wait=refuse_to_wait),
            AuditLog(pool),
        )


def webhook_sources(settings: Settings) -> Sequence[WebhookSource]:
    """Read the sources of webhooks, and their secrets, from files.

    Raises:
        ConfigError: a source is invalid.
    """
    return load_sources(settings.webhooks) if settings.webhooks is not None else []


def routes_of(
    settings: Settings,
    connections: RouteConnections,
    accepted: Mapping[str, Counter],
    memory: BodyMemory,
    webhooks: ReceivedWebhooks,
) -> list[Route]:
    """Build all routes, without using a connection. `accepted` counts orders by origin."""
    limits = BodyLimits(settings.api_body_limit, settings.api_body_timeout, memory)
    queueing = Queueing(connections.producer, accepted["api"])

    async def redis_answers() -> None:
        with translated():
            await connections.redis.ping()

    of_webhooks = WebhookRoutes(
        webhooks.sources,
        connections.producer,
        limits,
        webhooks.counters,
        accepted=accepted["webhook"],
        coalesce=settings.coalesce,
    )
    described = [
        *Health(redis_answers).routes(),
        *Announcing(queueing, Idempotency(connections.calls), limits).routes(),
        *Pushing(queueing, decoder_of(mapping_of(settings)), limits).routes(),
        *OrderRoutes(connections.orders).routes(),
        *QueueRoutes(connections.monitor).routes(),
        *RetryRoutes(connections.retries, connections.audit_log, limits).routes(),
        *DeadLetterRoutes(connections.dead_letters, connections.audit_log, limits).routes(),
        *(of_webhooks.routes() if webhooks.sources else []),
    ]
    return [*described, OpenApi(described).route]


def all_described() -> dict[str, Any]:
    """Return the OpenAPI document with all routes, regardless of the settings."""
    webhooks = ReceivedWebhooks(cast("Any", [SimpleNamespace(name="any")]))
    counters = cast("Any", dict.fromkeys(ORIGINS))
    every = routes_of(load_settings(), RouteConnections.none(), counters, BodyMemory(0), webhooks)
    return document_of(every)
