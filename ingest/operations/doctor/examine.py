"""Runs the checks of all areas concurrently, so that an unavailable server hides no finding about the others."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingest.domain.errors import QueueUnavailable, StoreUnavailable
from ingest.operations.backends import Backends
from ingest.operations.doctor import circuits, outbox, postgres, redis, settings, upstream
from ingest.operations.doctor.finding import Diagnosis, Finding
from ingest.operations.doctor.host import Machine
from ingest.operations.doctor.outbox import OutboxSubject
from ingest.operations.doctor.redis import RedisNeeds
from ingest.operations.doctor.settings import Configured
from ingest.operations.doctor.upstream import UpstreamSubject
from ingest.queue.operate import inspection as queue_inspection
from ingest.queue.operate.inspection import RedisFacts
from ingest.store import inspection as store_inspection
from ingest.store.inspection import PostgresFacts
from ingest.store.outbox.outbox_inspection import inspect_outbox


@dataclass(frozen=True, slots=True)
class Subject:
    """A set-up to examine.

    Attributes:
        backends: Redis and PostgreSQL.
        quota: the name of the quota of the external API.
        outbox: the location of the outbox, if any.
        redis: requirements of Redis that follow from the settings.
        upstream: the external API.
        configured: the settings.
        unknown: a line for each variable that looks like a setting but is unknown.
        host: the machine that the workers will run on.
    """

    backends: Backends
    quota: str
    outbox: OutboxSubject
    redis: RedisNeeds
    upstream: UpstreamSubject
    configured: Configured
    unknown: Sequence[str]
    host: Machine


async def examine(subject: Subject, within: float = 10.0) -> Diagnosis:
    """Run all checks, each with a time limit of `within` seconds.

    Raises:
        ConfigError: a setting is unusable.
    """
    asking_redis = asyncio.create_task(_redis(subject, within))
    asking_postgres = asyncio.create_task(_postgres(subject, within))
    asking_outbox = asyncio.create_task(_outbox(subject, within))
    asking_circuits = asyncio.create_task(_circuits(subject, within))

    async def known_order() -> str | None:
        queue, store = await asyncio.gather(asking_redis, asking_postgres)
        queued = queue.newest if isinstance(queue, RedisFacts) else None
        return queued or (store.some_order if isinstance(store, PostgresFacts) else None)

    asking_upstream = asyncio.create_task(upstream.findings(subject.upstream, known_order, within))
    await _all_done(asking_redis, asking_postgres, asking_outbox, asking_upstream, asking_circuits)
    queue, store = asking_redis.result(), asking_postgres.result()
    processes = subject.configured.processes
    return Diagnosis(
        [
            *([queue] if isinstance(queue, Finding) else redis.findings(queue, subject.redis)),
            *([store] if isinstance(store, Finding) else postgres.findings(store, processes)),
            *asking_outbox.result(),
            *asking_upstream.result(),
            *asking_circuits.result(),
            *settings.findings(subject.configured, subject.unknown, subject.host),
        ]
    )


async def _redis(subject: Subject, within: float) -> RedisFacts | Finding:
    backends = subject.backends
    try:
        async with asyncio.timeout(within):
            return await queue_inspection.inspect(backends.redis_url, backends.stream, backends.group, subject.quota)
    except QueueUnavailable as error:
        return redis.unusable(error)
    except TimeoutError:
        return redis.unusable(QueueUnavailable(f"no answer within {within:g} s"))


async def _postgres(subject: Subject, within: float) -> PostgresFacts | Finding:
    try:
        async with asyncio.timeout(within):
            return await store_inspection.inspect(subject.backends.postgres_dsn)
    except StoreUnavailable as error:
        return postgres.unusable(error)
    except TimeoutError:
        return postgres.unusable(StoreUnavailable(f"no answer within {within:g} s"))


async def _outbox(subject: Subject, within: float) -> list[Finding]:
    configured = subject.outbox.dsn
    try:
        async with asyncio.timeout(within):
            facts = await inspect_outbox(configured or subject.backends.postgres_dsn, subject.outbox.table)
    except TimeoutError:
        problem = StoreUnavailable(f"no answer within {within:g} s")
    except StoreUnavailable as error:
        problem = error
    else:
        return list(outbox.findings(facts, is_configured=configured is not None))
    # Without its own DSN, the outbox is looked for in the orders' database, whose check already reports the problem.
    return [] if configured is None else [outbox.unusable(problem)]


async def _circuits(subject: Subject, within: float) -> list[Finding]:
    try:
        async with asyncio.timeout(within):
            return list(circuits.findings(await circuits.open_circuits(subject.backends)))
    except TimeoutError:
        return []  # reported by the check of Redis


async def _all_done(*tasks: asyncio.Task[Any]) -> None:
    """Wait until all tasks have ended, then raise the exception of the first that failed."""
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
