"""Checks a source as `ingest source check` does: its files, its external API, and one order of it. Changes nothing.

The parts that find problems are shared with `ingest doctor`.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from ingest.api.webhooks.source_webhook import webhook_of
from ingest.domain.errors import ConfigError, Unavailable, UserError
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import Order
from ingest.mapping.transforms.process_pool import check_function
from ingest.operations.doctor import upstream
from ingest.operations.doctor.finding import Area, Checks, Finding, Level
from ingest.operations.doctor.upstream import Api
from ingest.queue.operate.inspection.servers import inspect_servers
from ingest.services.lists.list_check import check_list
from ingest.settings import Settings
from ingest.settings.names import naming_keys_of, with_names_of
from ingest.settings.source_file import source_settings
from ingest.sources.doctor_subject import upstream_subject
from ingest.sources.from_settings import quota_name_of
from ingest.store import inspection as store_inspection

_OF = Checks(Area.SETTINGS)


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """The results of the checks of one source.

    Attributes:
        source: the name of the source.
        findings: of each check.
        order: the order that a worker would store, before any transform. None if no order could be requested or mapped.
    """

    source: str
    findings: tuple[Finding, ...]
    order: Order | None

    @property
    def has_failed(self) -> bool:
        """Whether a check has found an error."""
        return any(finding.level is Level.ERROR for finding in self.findings)


async def check_source(
    process: Settings, name: str, order_id: str | None, environ: Mapping[str, str], within: float
) -> SourceCheck:
    """Check one source. A problem in its table does not prevent the checks of other sources.

    Args:
        process: the settings of the process.
        name: of the source.
        order_id: the order to request. None for a queued or stored one.
        environ: the environment of the process, with proxies.
        within: seconds to wait for each server.
    """
    try:
        settings = source_settings(process, [name])[name]
    except ConfigError as error:
        return SourceCheck(name, (_OF.error(str(error), "correct the sources file"),), None)
    orders: list[Order] = []
    found = [
        await _transform(settings),
        *_webhook(settings),
        *await _upstream(settings, order_id, environ, within, orders),
    ]
    if not any(each is not None and each.level is Level.ERROR for each in found):
        found += await check_list(settings, environ, within)
    named = (
        replace(each, what=with_names_of(name, each.what), advice=with_names_of(name, each.advice))
        for each in found
        if each is not None
    )
    return SourceCheck(name, tuple(named), orders[0] if orders else None)


async def _transform(settings: Settings) -> Finding | None:
    if settings.transform is None:
        return None
    try:
        await check_function(settings.transform, settings.transform_memory)
    except ConfigError as error:
        return _OF.error(str(error), "correct the function, or its name")
    return _OF.ok(f"the transform {settings.transform} can be loaded")


def _webhook(settings: Settings) -> Iterator[Finding]:
    try:
        webhook = webhook_of(settings)
    except ConfigError as error:
        yield _OF.error(str(error), "correct the table of the webhook, or its file of secrets")
        return
    if webhook is not None:
        secrets = len(webhook.secrets.keys)
        yield _OF.ok(
            f"the webhook {webhook.path} can be received: {secrets} secret{'s' if secrets > 1 else ''} can be read"
        )


async def _upstream(
    settings: Settings, order_id: str | None, environ: Mapping[str, str], within: float, orders: list[Order]
) -> list[Finding]:
    """Check the external API, and append the orders in the document."""
    try:
        with naming_keys_of(settings.source):
            subject = upstream_subject(settings, order_id, environ)
    except ConfigError as error:
        return [_OF.error(str(error), "correct the settings of the source")]

    @asynccontextmanager
    async def open_api() -> AsyncIterator[Api]:
        async with subject.open_api() as api:
            yield _Recording(api, orders)

    async def known_order() -> str | None:
        return await _queued(settings, within) or await _stored(settings, within)

    return await upstream.findings(replace(subject, open_api=open_api), known_order, within)


@dataclass(frozen=True, slots=True)
class _Recording:
    """An external API that records the decoded orders."""

    api: Api
    orders: list[Order]

    @property
    def notices(self) -> Collection[str]:
        return self.api.notices

    async def authenticate(self) -> None:
        await self.api.authenticate()

    async def fetch(self, request: FetchRequest) -> bytes:
        return await self.api.fetch(request)

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        decoded = await self.api.decode(body, request)
        self.orders.extend(decoded)
        return decoded


async def _queued(settings: Settings, within: float) -> str | None:
    """Return an order in the queue. An unavailable Redis is not an error of the source."""
    url, quota = settings.redis_url.get_secret_value(), quota_name_of(settings)
    try:
        async with asyncio.timeout(within):
            found = await inspect_servers(url, {settings.stream: quota}, settings.group)
            return found.newest(settings.stream)
    except (Unavailable, UserError, TimeoutError):
        return None


async def _stored(settings: Settings, within: float) -> str | None:
    """Return a stored order. An unavailable PostgreSQL is not an error of the source."""
    try:
        async with asyncio.timeout(within):
            found = await store_inspection.inspect(settings.postgres_dsn.get_secret_value(), [settings.source])
            return found.some_orders.get(settings.source)
    except (Unavailable, UserError, TimeoutError):
        return None
