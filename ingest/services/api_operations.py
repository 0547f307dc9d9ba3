"""The groups of routes about orders and operations, and their connections."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

from redis.asyncio import Redis

from ingest.api.http.requests import BodyLimits
from ingest.api.http.server import RouteGroup
from ingest.api.operations.dead_letter_routes import DeadLetterRoutes, refuse_to_wait
from ingest.api.operations.operations_routes import QueueRoutes, RetryRoutes
from ingest.api.orders.order_routes import OrderRoutes
from ingest.operations.backends import Backends
from ingest.operations.orders import Orders
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.retries import Retries
from ingest.settings import Settings
from ingest.store.audit import AuditLog
from ingest.store.pool import Pool


@dataclass(frozen=True, slots=True)
class Operated:
    """The connections of these routes, which are made when they are first used."""

    orders: Orders
    monitor: Monitor
    retries: Retries
    dead_letters: DeadLetters
    audit_log: AuditLog

    @classmethod
    def none(cls) -> Self:
        """Nothing: for routes that are described, and not called."""
        return cls(*(cast("Any", None),) * 5)


@asynccontextmanager
async def open_operated(settings: Settings, redis: Redis) -> AsyncIterator[Operated]:
    """With its own connections to PostgreSQL."""
    backends = Backends.of(settings)
    queue = (redis, backends.stream)
    async with Orders.open(backends) as orders, Pool.open(backends.postgres_dsn, size=2) as pool:
        yield Operated(
            orders,
            Monitor(*queue, backends.group),
            Retries(*queue, backends.group),
            DeadLetters(*queue, group=backends.group, on_wait=refuse_to_wait),
            AuditLog(pool),
        )


def operation_groups(operated: Operated, limits: BodyLimits) -> list[RouteGroup]:
    """The groups. Building them uses no connection."""
    return [
        OrderRoutes(operated.orders),
        QueueRoutes(operated.monitor),
        RetryRoutes(operated.retries, operated.audit_log, limits),
        DeadLetterRoutes(operated.dead_letters, operated.audit_log, limits),
    ]
