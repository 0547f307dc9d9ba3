"""Keeps the reports of the processes of a deployment in one hash in Redis, with a field of each process.

A process writes its report again before it expires. Reports of processes that have died are removed when another process writes.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.service_report import HOUR, ServiceReport
from ingest.queue.layout.keys import DEFAULT_GROUP
from ingest.queue.operate.controls import controls_key
from ingest.queue.redis.connection import translated, translating


class ServiceReports:
    """The reports of one deployment and consumer group.

    Writing methods raise `QueueUnavailable` when Redis cannot be used right now.

    Args:
        stream: the name of the queue of the unnamed source.
        group: the consumer group.
        now: Unix seconds.
    """

    def __init__(
        self, client: Redis, stream: str, group: str = DEFAULT_GROUP, now: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        # All users of the service may write a hash there.
        self._key = controls_key(stream, group, "-reports")
        self._now = now

    async def read(self) -> list[ServiceReport]:
        """Return all reports, even of processes that have ended, or none if the server with them cannot be used."""
        try:
            with translated():
                found = await self._all()
        except QueueUnavailable:
            return []
        return [report for report in found.values() if report is not None]

    @translating
    async def write(self, name: str, report: ServiceReport) -> list[ServiceReport]:
        """Write the report of a process. Reports without current counts that have expired are removed, and returned to one process."""
        await self._client.hset(self._key, name, msgspec.json.encode(report))
        return [
            each
            for field, each in (await self._all()).items()
            if each is not None
            and each.until + (HOUR if each.webhooks else 0) <= self._now()
            and await self._client.hdel(self._key, field)
        ]

    @translating
    async def remove(self, name: str) -> None:
        """Remove the report of a process."""
        await self._client.hdel(self._key, name)

    async def _all(self) -> dict[bytes, ServiceReport | None]:
        fields: dict[Any, Any] = {name: raw async for name, raw in self._client.hscan_iter(self._key)}
        return {name: _decoded(raw) for name, raw in fields.items()}


def _decoded(raw: bytes) -> ServiceReport | None:
    """The report, or None if this release cannot read it."""
    try:
        return msgspec.json.decode(raw, type=ServiceReport)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
