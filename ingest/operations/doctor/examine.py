"""Runs the checks of all areas concurrently, so that an unavailable server hides no finding about the others.

Sources share the servers, which are checked once. The external API and the settings of each source are checked separately.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ingest.domain.errors import ConfigError, QueueUnavailable, StoreUnavailable
from ingest.domain.source_name import UNNAMED, names_in_outbox
from ingest.operations.backends import Backends
from ingest.operations.doctor import controls, outbox, polls, postgres, removed_sources, servers, states, upstream
from ingest.operations.doctor import settings as settings_checks
from ingest.operations.doctor.finding import Area, Finding, Level
from ingest.operations.doctor.settings import Machine
from ingest.operations.doctor.upstream import UpstreamSubject
from ingest.operations.state.snapshots import read_snapshot
from ingest.queue.operate.inspection.servers import ServersFacts, inspect_servers
from ingest.queue.operate.removed_queues import removed_queues
from ingest.settings import Settings
from ingest.settings.names import with_names_of
from ingest.store import inspection as store_inspection
from ingest.store.connections.pool import MOST_CONNECTIONS
from ingest.store.inspection import PostgresFacts
from ingest.store.outbox.outbox_inspection import inspect_outbox

_Facts = TypeVar("_Facts")
_Problem = TypeVar("_Problem", QueueUnavailable, StoreUnavailable)


_ORDER = (Level.ERROR, Level.WARNING, Level.OK)
# Sources whose external APIs are checked concurrently.
_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class SourceSubject:
    """A source to examine.

    Attributes:
        settings: of the source.
        quota: the name of the quota of the external API.
        has_quota: whether processes share that quota.
        upstream: the external API.
    """

    settings: Settings
    quota: str
    has_quota: bool
    upstream: UpstreamSubject


@dataclass(frozen=True, slots=True)
class Subject:
    """A set-up to examine.

    Attributes:
        settings: of the service.
        unknown: a line for each variable that looks like a setting but is unknown.
        configured: the names of all sources.
        sources: those to examine.
        host: the machine that the workers will run on.
        rejected: the problem of each source that cannot be examined, by name.
    """

    settings: Settings
    unknown: Sequence[str]
    configured: Collection[str]
    sources: Sequence[SourceSubject]
    host: Machine
    rejected: dict[str, str] = field(default_factory=dict)


async def examine(subject: Subject, within: float = 10.0) -> list[Finding]:
    """Check the servers once, then each source, and return the findings, errors first. Each check has a time limit of `within` seconds.

    Raises:
        ConfigError: a setting is unusable.
    """
    settings, backends = subject.settings, Backends.of(subject.settings)
    outbox_dsn = backends.postgres_dsn if settings.outbox_dsn is None else settings.outbox_dsn.get_secret_value()
    queues = {each.settings.stream: each.quota for each in subject.sources}
    names = [each.settings.source for each in subject.sources]
    inspecting_redis = asyncio.create_task(
        _facts(inspect_servers(backends.redis_url, queues, backends.group, within / 2), within, QueueUnavailable)
    )
    inspecting_postgres = asyncio.create_task(
        _facts(store_inspection.inspect(backends.postgres_dsn, names), within, StoreUnavailable)
    )
    reading_controls = asyncio.create_task(_facts(controls.read_controls(backends), within, QueueUnavailable))
    reading_states = asyncio.create_task(
        read_snapshot([Backends.of(each) for each in _settings_of_all(subject)], checks_store=False)
    )
    reading_polls = asyncio.create_task(polls.findings(backends.postgres_dsn, names))
    inspecting_outbox = asyncio.create_task(
        _facts(
            inspect_outbox(outbox_dsn, settings.outbox_table, names_in_outbox(subject.configured)),
            within,
            StoreUnavailable,
        )
    )

    async def search_removed() -> list[Finding]:
        store, queue = await asyncio.gather(inspecting_postgres, inspecting_redis)
        stored = store.stored_sources if isinstance(store, PostgresFacts) else ()
        layouts = queue.layouts.values() if isinstance(queue, ServersFacts) else ()
        if UNNAMED in subject.configured and not any(layout.generation for layout in layouts):
            return []
        return await _removed_sources(subject, backends, stored, within)

    searching = asyncio.create_task(search_removed())
    limit = asyncio.Semaphore(_AT_ONCE)

    async def of_source(source: SourceSubject) -> list[Finding]:
        async def known_order() -> str | None:
            queue, store = await asyncio.gather(inspecting_redis, inspecting_postgres)
            queued = queue.newest(source.settings.stream) if isinstance(queue, ServersFacts) else None
            stored = store.some_orders.get(source.settings.source) if isinstance(store, PostgresFacts) else None
            return queued or stored

        async with limit:
            return await _examine_source(source, known_order, within)

    examining = [asyncio.create_task(of_source(source)) for source in subject.sources]
    await asyncio.gather(
        *(inspecting_redis, inspecting_postgres, reading_controls, reading_polls, reading_states),
        *(inspecting_outbox, searching, *examining),
        return_exceptions=True,
    )
    has_quota = any(source.has_quota for source in subject.sources)
    found = [
        *servers.findings(
            inspecting_redis.result(),
            settings,
            {each.settings.stream: each.settings.partitions for each in subject.sources},
            has_quota=has_quota,
        ),
        *searching.result(),
        *states.findings(reading_states.result()),
        *controls.findings(reading_controls.result(), names),
        *reading_polls.result(),
        *postgres.findings(
            inspecting_postgres.result(), settings.processes * min(len(subject.configured), MOST_CONNECTIONS)
        ),
        *outbox.findings(inspecting_outbox.result(), is_configured=settings.outbox_dsn is not None),
        *(finding for examined in examining for finding in examined.result()),
        *settings_checks.findings(settings, subject.unknown, subject.host),
        *(
            Finding(Area.SETTINGS, Level.ERROR, problem, "correct it, and run `ingest doctor` again", name)
            for name, problem in subject.rejected.items()
        ),
    ]
    return sorted(found, key=lambda finding: _ORDER.index(finding.level))


def _settings_of_all(subject: Subject) -> list[Settings]:
    """Return the settings of the sources, with only the servers and the queue of those that cannot be used."""
    usable = {each.settings.source: each.settings for each in subject.sources}
    others = [name for name in subject.rejected if name not in usable]
    return [*usable.values(), *(subject.settings.of_source(name, {}) for name in others)]


async def _examine_source(
    source: SourceSubject, known_order: Callable[[], Awaitable[str | None]], within: float
) -> list[Finding]:
    """Check the external API and the settings of a source."""
    name = source.settings.source
    found = [
        *await upstream.findings(source.upstream, known_order, within),
        *(settings_checks.findings_of_source(source.settings) if name else ()),
    ]
    return [
        replace(
            finding, what=with_names_of(name, finding.what), advice=with_names_of(name, finding.advice), source=name
        )
        for finding in found
    ]


async def _removed_sources(
    subject: Subject, servers: Backends, stored: Collection[str], within: float
) -> list[Finding]:
    """Look for queues that no worker reads."""
    searching = removed_queues(servers.redis_url, servers.stream, subject.configured, stored, servers.group)
    return [*removed_sources.findings(await _facts(searching, within, QueueUnavailable))]


async def _facts(inspecting: Coroutine[Any, Any, _Facts], within: float, problem: type[_Problem]) -> _Facts | _Problem:
    """Return the facts, or the problem that prevents reading them."""
    try:
        async with asyncio.timeout(within):
            return await inspecting
    except ConfigError:
        # A setting that cannot be used is not a state of its server.
        raise
    except problem as error:
        return error
    except TimeoutError:
        return problem(f"no answer within {within:g} s")
