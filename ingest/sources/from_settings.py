"""Makes a source from the settings."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ingest.domain.errors import ConfigError
from ingest.domain.fetch.quota import QuotaLimits
from ingest.settings.names import naming_keys_of, with_names_of
from ingest.sources.documents import mapping_of
from ingest.sources.endpoint import endpoint_of, requested_url
from ingest.sources.source import Source, TransformOptions
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.bulk.bulk import BulkOptions
from ingest.upstream.http.tls_context import UnusableFile
from ingest.upstream.http.transport import UpstreamLimits

if TYPE_CHECKING:
    from ingest.mapping.compiled.mapping import CompiledMapping
    from ingest.settings import Settings
    from ingest.upstream.lists.order_list import ListOptions


def source_of(settings: "Settings", environ: Mapping[str, str]) -> Source:
    """Return the source that the settings describe, with the proxies of the environment.

    Raises:
        ConfigError: settings do not fit together, or a file, a proxy or the mapping cannot be used.
    """
    with naming_keys_of(settings.source):
        mapping = mapping_of(settings)
    bulk, document = _bulk(settings), settings.upstream_body_limit
    limits = UpstreamLimits(
        connect=settings.upstream_connect_timeout,
        read=settings.upstream_read_timeout,
        total=settings.upstream_timeout,
        # A document for each order, and no more than the buffer takes.
        body=document if bulk is None else min(bulk.size * document, max(document, settings.batch_bytes)),
        tries=settings.upstream_tries,
    )
    endpoint = endpoint_of(settings, environ)
    return Source(
        name=settings.source,
        endpoint=endpoint,
        limits=limits,
        quota_name=quota_name_of(settings),
        quota=_quota(settings),
        is_adaptive=settings.upstream_adaptive == "on",
        concurrency=settings.concurrency,
        body_limit=document,
        bulk=bulk,
        mapping=mapping,
        transform=transform_of(settings),
        keeps_documents=settings.keep_document == "on",
        results_age=settings.results_age if settings.results == "on" else 0.0,
        order_list=_list(settings, endpoint, limits, environ, mapping),
        poll=settings.poll or None,
    )


def check_files(source: Source) -> None:
    """Check the certificates, before processes are started.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    try:
        source.endpoint.access.tls.read()
    except UnusableFile as error:
        raise ConfigError(with_names_of(source.name, str(error))) from None


def transform_of(settings: "Settings") -> TransformOptions | None:
    """Return the transform of the settings, if they name one."""
    if settings.transform is None:
        return None
    return TransformOptions(
        settings.transform, settings.transform_processes, settings.transform_timeout, settings.transform_memory
    )


def _bulk(settings: "Settings") -> BulkOptions | None:
    if not settings.upstream_bulk_url:
        return None
    size = min(settings.upstream_bulk_size, settings.concurrency)
    return BulkOptions(
        size=size,
        requests=math.ceil(settings.concurrency / size),
        url_length=len(requested_url(settings)),
        body=settings.upstream_body_limit,
        path=settings.upstream_bulk_path,
        id_path=settings.upstream_bulk_id,
    )


def _list(
    settings: "Settings",
    endpoint: Endpoint,
    limits: UpstreamLimits,
    environ: Mapping[str, str],
    mapping: "CompiledMapping | None",
) -> "ListOptions | None":
    if settings.order_list is None and not settings.poll:
        return None
    from ingest.sources.order_lists import list_of  # noqa: PLC0415  only some need it

    return list_of(settings, endpoint, limits, environ, mapping)


def quota_name_of(settings: "Settings") -> str:
    """Return the name of the quota that the processes of a source share."""
    if settings.upstream_quota:
        return settings.upstream_quota
    # Named sources at one host are different accounts, and each account has its own limits.
    host = urlsplit(settings.upstream_url).netloc.rpartition("@")[2].lower()
    return settings.stream if settings.source else host


def _quota(settings: "Settings") -> QuotaLimits:
    rate, burst, cost = settings.upstream_rate, settings.upstream_burst, settings.upstream_cost
    if rate and cost:
        return QuotaLimits(rate / cost, max(1, int(burst / cost)), settings.upstream_concurrency, cost)
    limits = QuotaLimits(
        rate, burst or 1, settings.upstream_concurrency, rate_header=settings.upstream_rate_header or ""
    )
    return limits if burst else limits.with_rate(rate)
