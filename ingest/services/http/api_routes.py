"""The routes of the HTTP API. The routes of a source are built for each source, with its own parts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from ingest.api.documentation.openapi import OpenApi, document_of
from ingest.api.health import Health
from ingest.api.http.requests import BodyLimits
from ingest.api.http.routing import Route
from ingest.api.http.source_routing import ambiguous_routes, routes_of_sources
from ingest.api.operations.audit_routes import AuditRoutes
from ingest.api.operations.backfill_routes import BackfillRoutes
from ingest.api.operations.control_routes import PauseRoutes, WorkerRoutes
from ingest.api.operations.entry_routes import DeadLetterRoutes, EntryRoutes
from ingest.api.operations.job_routes import JobRoutes
from ingest.api.operations.operations_routes import QueueRoutes, SourceRoutes
from ingest.api.orders.announcing import Announcing
from ingest.api.orders.idempotency import Idempotency
from ingest.api.orders.order_routes import OrderRoutes
from ingest.api.orders.pushing import Pushing
from ingest.api.orders.queueing import Queueing
from ingest.api.webhooks.routes import Receiver, WebhookRoutes
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.errors import ConfigError
from ingest.domain.operating.service_report import WebhookCounts
from ingest.domain.source_name import UNNAMED
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.queue.redis.connection import translated
from ingest.services.http.api_connections import RouteConnections
from ingest.services.http.served_sources import ServedSources
from ingest.settings import Settings, load_settings
from ingest.sources.documents import decoder_of, skips_of
from ingest.telemetry.shared_metrics import Counter

if TYPE_CHECKING:
    from ingest.flow.ports import Decode

# Values of the label `origin` in metrics.
ORIGINS = ("api", "webhook")


@dataclass(frozen=True, slots=True)
class RouteCounters:
    """The counters of the routes.

    Attributes:
        accepted: enqueued orders, by source, then by origin.
        webhooks: by webhook and result.
        reported: webhooks by source, for the report of the process.
    """

    accepted: Mapping[str, Mapping[str, Counter]]
    webhooks: Mapping[tuple[str, str], Counter] = field(default_factory=dict)
    reported: dict[str, WebhookCounts] = field(default_factory=dict)

    @classmethod
    def none(cls, sources: Collection[str]) -> Self:
        """Return no counters for these sources, for routes that are described and not called."""
        return cls(dict.fromkeys(sources, cast("Any", dict.fromkeys(ORIGINS))))


def routes_of(
    settings: Settings,
    sources: ServedSources,
    connections: RouteConnections,
    counters: RouteCounters,
) -> list[Route]:
    """Build all routes, without using a connection."""
    limits = BodyLimits(settings.api_body_limit, settings.api_body_timeout)

    async def redis_answers() -> None:
        with translated():
            await connections.redis.ping()

    of_sources = {
        name: _routes_of_source(each, _decoder(sources, name), connections, counters.accepted[name]["api"], limits)
        for name, each in sources.settings.items()
    }
    described = [
        *Health(redis_answers).routes(),
        *SourceRoutes({name: each.monitor for name, each in connections.sources.items()}).routes(),
        *AuditRoutes(connections.pool).routes(),
        *routes_of_sources(of_sources),
        *WorkerRoutes(connections.controls, limits).routes(),
        *_webhook_routes(sources, connections, counters, limits),
    ]
    return [*described, OpenApi(described).route, *ambiguous_routes(of_sources)]


def _decoder(sources: ServedSources, name: str) -> "Decode":
    if name not in sources.rejected or name in sources.mappings:
        return decoder_of(sources.mappings.get(name))

    def reject(*_: object) -> NoReturn:
        raise ConfigError(sources.rejected[name].problem)

    return OrderDecoder(reject)


def _routes_of_source(
    settings: Settings,
    decoder: "Decode",
    connections: RouteConnections,
    accepted: Counter,
    limits: BodyLimits,
) -> list[Route]:
    """Build the routes of one source, with the paths of an only source."""
    source = connections.sources[settings.source]
    name, queueing = settings.source, Queueing(source.producer, accepted, connections.admission, settings.source)

    def entry_routes(kind: EntryKind, others: Sequence[Route] = ()) -> Sequence[Route]:
        entries = source.entries[kind]
        return EntryRoutes(kind, entries, source.audit_log, limits, connections.groups, name, others).routes()

    return [
        *Announcing(queueing, Idempotency(source.calls), limits).routes(),
        *Pushing(queueing, decoder, limits).routes(),
        *OrderRoutes(source.orders).routes(),
        *QueueRoutes(source.monitor).routes(),
        *entry_routes(EntryKind.RETRIES),
        *entry_routes(EntryKind.DEAD_LETTERS, DeadLetterRoutes(source.dead_letters, source.audit_log, name).routes()),
        *PauseRoutes(connections.controls, limits, settings.source).routes(),
        *JobRoutes(source.entries, source.jobs, limits, connections.job_runs, source.job_output).routes(),
        *BackfillRoutes(source.jobs, limits, has_list=settings.order_list is not None).routes(),
    ]


def _webhook_routes(
    sources: ServedSources, connections: RouteConnections, counters: RouteCounters, limits: BodyLimits
) -> Sequence[Route]:
    receivers = {
        webhook.name: Receiver(
            webhook,
            name,
            connections.sources[name].producer,
            counters.accepted[name]["webhook"],
            connections.admission,
            sources.settings[name].coalesce,
            skips_of(sources.mappings.get(name)),
        )
        for name, webhooks in sources.webhooks.items()
        for webhook in webhooks
    }
    unusable = sources.rejected.keys() - receivers.keys()
    if not receivers and not unusable:
        return []
    return WebhookRoutes(receivers, limits, counters.webhooks, unusable, counters.reported).routes()


def all_described() -> dict[str, Any]:
    """Return the OpenAPI document with all routes of an only source, regardless of the settings."""
    settings = load_settings()
    sources = ServedSources({UNNAMED: settings}, {UNNAMED: cast("Any", [SimpleNamespace(name="any")])})
    return document_of(
        routes_of(
            settings,
            sources,
            RouteConnections.none(sources.settings),
            RouteCounters.none(sources.settings),
        )
    )
