"""Makes the subject of `ingest doctor` from the settings."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import document_of
from ingest.domain.orders.order import Order
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.ports import Upstream
from ingest.operations.doctor.examine import Subject
from ingest.operations.doctor.settings import Machine
from ingest.operations.doctor.upstream import UpstreamSubject
from ingest.settings import Settings, names_in_dot_env, unknown_settings
from ingest.sources.documents import decoder_of
from ingest.sources.from_settings import check_files, source_of
from ingest.sources.opening import fetching_by
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import UpstreamClient, require


@dataclass(frozen=True, slots=True)
class ConfiguredApi:
    """Implements the port `ingest.operations.doctor.upstream.Api` with the parts of a worker."""

    client: UpstreamClient
    upstream: Upstream
    decoder: OrderDecoder[Order]

    async def authenticate(self) -> None:
        """See `Api`."""
        await self.client.authenticate()

    async def fetch(self, request: FetchRequest) -> bytes:
        """See `Api`."""
        return document_of(await self.upstream.fetch(request))

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """See `Api`."""
        return await self.decoder.decode(body, request)


def subject_of(settings: Settings, order_id: str | None, environ: Mapping[str, str]) -> Subject:
    """What to examine.

    Raises:
        ConfigError: settings do not fit together, or a file that they name cannot be used.
    """
    source = source_of(settings, environ)
    return Subject(
        settings,
        unknown_settings(environ, names_in_dot_env()),
        source.quota_name,
        source.has_quota,
        upstream_subject(settings, order_id, environ),
        Machine.here(),
    )


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
        limits = replace(source.limits, tries=1)
        async with (
            UpstreamClient.open(source.endpoint, limits, seconds) as client,
            fetching_by(client, source) as fetching,
        ):
            yield ConfiguredApi(client, fetching.upstream, decoder)

    return UpstreamSubject(source.endpoint, open_api, order_id, source.mapping is not None, source.limits.total)
