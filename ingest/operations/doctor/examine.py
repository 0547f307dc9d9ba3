"""Runs the checks of all areas concurrently, so that an unavailable server hides no finding about the others."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ingest.domain.errors import QueueUnavailable, StoreUnavailable
from ingest.operations.backends import Backends
from ingest.operations.doctor import circuits, outbox, postgres, redis, upstream
from ingest.operations.doctor import settings as settings_checks
from ingest.operations.doctor.finding import Finding
from ingest.operations.doctor.settings import Machine
from ingest.operations.doctor.upstream import UpstreamSubject
from ingest.queue.operate import inspection as queue_inspection
from ingest.queue.operate.inspection import RedisFacts
from ingest.settings import Settings
from ingest.store import inspection as store_inspection
from ingest.store.inspection import PostgresFacts
from ingest.store.outbox.outbox_inspection import inspect_outbox

_Facts = TypeVar("_Facts")
_Problem = TypeVar("_Problem", QueueUnavailable, StoreUnavailable)


@dataclass(frozen=True, slots=True)
class Subject:
    """A set-up to examine.

    Attributes:
        settings: of the service.
        unknown: a line for each variable that looks like a setting but is unknown.
        quota: the name of the quota of the external API.
        has_quota: whether processes share that quota.
        upstream: the external API.
        host: the machine that the workers will run on.
    """

    settings: Settings
    unknown: Sequence[str]
    quota: str
    has_quota: bool
    upstream: UpstreamSubject
    host: Machine


async def examine(subject: Subject, within: float = 10.0) -> list[Finding]:
    """Run all checks, each with a time limit of `within` seconds.

    Raises:
        ConfigError: a setting is unusable.
    """
    settings, servers = subject.settings, Backends.of(subject.settings)
    outbox_dsn = servers.postgres_dsn if settings.outbox_dsn is None else settings.outbox_dsn.get_secret_value()
    inspecting_redis = asyncio.create_task(
        _facts(
            queue_inspection.inspect(servers.redis_url, servers.stream, servers.group, subject.quota),
            *(within, QueueUnavailable),
        )
    )
    inspecting_postgres = asyncio.create_task(
        _facts(store_inspection.inspect(servers.postgres_dsn), within, StoreUnavailable)
    )
    inspecting_outbox = asyncio.create_task(
        _facts(inspect_outbox(outbox_dsn, settings.outbox_table), within, StoreUnavailable)
    )
    reading_circuits = asyncio.create_task(_facts(circuits.open_circuits(servers), within, QueueUnavailable))

    async def known_order() -> str | None:
        queue, store = await asyncio.gather(inspecting_redis, inspecting_postgres)
        queued = queue.newest if isinstance(queue, RedisFacts) else None
        return queued or (store.some_order if isinstance(store, PostgresFacts) else None)

    checking_upstream = asyncio.create_task(upstream.findings(subject.upstream, known_order, within))
    running = (inspecting_redis, inspecting_postgres, inspecting_outbox, reading_circuits, checking_upstream)
    await asyncio.gather(*running, return_exceptions=True)
    return [
        *redis.findings(inspecting_redis.result(), settings, has_quota=subject.has_quota),
        *postgres.findings(inspecting_postgres.result(), settings.processes),
        *outbox.findings(inspecting_outbox.result(), is_configured=settings.outbox_dsn is not None),
        *checking_upstream.result(),
        *circuits.findings(reading_circuits.result()),
        *settings_checks.findings(settings, subject.unknown, subject.host),
    ]


async def _facts(inspecting: Coroutine[Any, Any, _Facts], within: float, problem: type[_Problem]) -> _Facts | _Problem:
    """Return the facts, or the problem that prevents reading them."""
    try:
        async with asyncio.timeout(within):
            return await inspecting
    except problem as error:
        return error
    except TimeoutError:
        return problem(f"no answer within {within:g} s")
