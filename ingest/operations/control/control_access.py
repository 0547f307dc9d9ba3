"""Access to the controls of a deployment: their record in Redis, its queues, and the audit log."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from redis.asyncio import Redis

from ingest.domain.operating.controls import Controls
from ingest.domain.source_name import UNNAMED
from ingest.operations.backends import Backends
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.redis.connection import control_client
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool


@dataclass(frozen=True, slots=True)
class ControlAccess:
    """The controls of a deployment.

    Attributes:
        redis: client of the queue server.
        pool: connections to PostgreSQL, for the audit log.
        sources: the configured sources by their names, at least one.
    """

    redis: Redis
    pool: Pool
    sources: Mapping[str, Backends]

    @classmethod
    @asynccontextmanager
    async def open(cls, sources: Sequence[Backends]) -> AsyncIterator[Self]:
        """Open the connections, which are made when they are first used."""
        first = sources[0]
        async with control_client(first.redis_url) as redis, Pool.open(first.postgres_dsn, size=1) as pool:
            yield cls(redis, pool, {each.source: each for each in sources})

    @property
    def record(self) -> ControlRecord:
        """The record of the controls."""
        first = next(iter(self.sources.values()))
        return ControlRecord(self.redis, first.deployment, first.group)

    async def read(self) -> Controls:
        """Read the controls.

        Raises:
            QueueUnavailable: Redis cannot be used right now.
        """
        return await self.record.read()

    def monitor(self, source: str) -> Monitor:
        """Return the monitor of a source's queue."""
        backends = self.sources[source]
        return Monitor(self.redis, layout_reader(self.redis, backends.stream), backends.group)

    def audit_log(self, source: str = UNNAMED) -> AuditLog:
        """Return the audit log of a source, or of the deployment."""
        return AuditLog(self.pool, source)
