"""Makes the subject of `ingest doctor` from the settings."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from ingest.domain.errors import ConfigError
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import document_of
from ingest.domain.orders.order import Order
from ingest.domain.source_name import chosen_source, chosen_sources
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.ports import Upstream
from ingest.operations.doctor.examine import SourceSubject, Subject
from ingest.operations.doctor.settings import Machine
from ingest.operations.doctor.upstream import UpstreamSubject
from ingest.settings import Settings, names_in_dot_env, unknown_settings
from ingest.settings.source_file import usable_source_settings
from ingest.sources.documents import decoder_of
from ingest.sources.from_settings import check_files, source_of
from ingest.sources.opening import fetching_by
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import UpstreamClient, require
from ingest.upstream.conditions import Conditions


@dataclass(frozen=True, slots=True)
class ConfiguredApi:
    """Implements the port `ingest.operations.doctor.upstream.Api` with the parts of a worker."""

    client: UpstreamClient
    upstream: Upstream
    decoder: OrderDecoder[Order]
    notices: Collection[str]

    async def authenticate(self) -> None:
        """See `Api`."""
        await self.client.authenticate()

    async def fetch(self, request: FetchRequest) -> bytes:
        """See `Api`."""
        return document_of(await self.upstream.fetch(request))

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """See `Api`."""
        return await self.decoder.decode(body, request)


def subject_of(
    settings: Settings, names: Sequence[str] | None, order_id: str | None, environ: Mapping[str, str]
) -> Subject:
    """What to examine.

    Args:
        settings: of the process.
        names: the sources to examine. None for all sources.
        order_id: the order to request, which needs a single source.
        environ: the environment of the process.

    Raises:
        ConfigError: settings do not fit together, or a file that they name cannot be used.
    """
    configured, rejected = usable_source_settings(settings)
    chosen = chosen_sources(names, [*configured, *rejected])
    if order_id is not None and len(chosen) > 1:
        chosen_source(None, chosen)
    found = []
    for name in chosen:
        if name in rejected:
            continue
        try:
            found.append(_source_subject(configured[name], order_id, environ))
        except ConfigError as error:
            if not name:
                raise
            rejected[name] = str(error)
    return Subject(
        settings,
        unknown_settings(environ, names_in_dot_env()),
        frozenset(configured | rejected),
        found,
        Machine.here(),
        {name: problem for name, problem in rejected.items() if name in chosen},
    )


def _source_subject(settings: Settings, order_id: str | None, environ: Mapping[str, str]) -> SourceSubject:
    source = source_of(settings, environ)
    return SourceSubject(settings, source.quota_name, source.has_quota, upstream_subject(settings, order_id, environ))


def upstream_subject(settings: Settings, order_id: str | None, environ: Mapping[str, str]) -> UpstreamSubject:
    """Return the external API of a source, to examine it.

    Raises:
        ConfigError: settings do not fit together, or a file that they name cannot be used.
    """
    require(settings.upstream_client)
    source = source_of(settings, environ)
    check_files(source)
    decoder = decoder_of(source.mapping)

    @asynccontextmanager
    async def open_api() -> AsyncIterator[ConfiguredApi]:
        seconds = WorkerMetrics.on(worker_shared_metrics(1), 0).upstream_request
        limits, notices = replace(source.limits, tries=1), dict[str, None]()
        conditions = Conditions(on_notice=lambda _, text: notices.setdefault(text))
        async with (
            UpstreamClient.open(source.endpoint, limits, seconds, conditions=conditions) as client,
            fetching_by(client, source) as fetching,
        ):
            yield ConfiguredApi(client, fetching.upstream, decoder, notices)

    return UpstreamSubject(source.endpoint, open_api, order_id, source.mapping is not None, source.limits.total)
