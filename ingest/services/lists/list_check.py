"""Checks the list of orders of a source by requesting its first page. Changes nothing."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from ingest.domain.errors import ConfigError, Fault
from ingest.domain.fetch.listed import PageRequest
from ingest.operations.doctor import polls
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.settings import Settings
from ingest.sources.from_settings import source_of
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.lists.order_list import HttpOrderList
from ingest.upstream.session import utc_now

_OF = Checks(Area.UPSTREAM)
_PERIOD = timedelta(days=1)


async def check_list(settings: Settings, environ: Mapping[str, str], within: float) -> list[Finding]:
    """Request the first page of the orders of the last day. Returns no finding for a source without a list.

    Args:
        settings: of the source.
        environ: the environment of the process, with proxies.
        within: seconds to wait for the page.
    """
    if settings.order_list is None:
        return []
    try:
        options = source_of(settings, environ).order_list
        if options is None:
            return []
        seconds = WorkerMetrics.on(worker_shared_metrics(1), 0).upstream_request
        async with asyncio.timeout(within), HttpOrderList.open(options, seconds) as orders:
            page = await orders.page(PageRequest(utc_now() - _PERIOD))
    except ConfigError as error:
        return [_OF.error(str(error), "correct the settings of the source")]
    except Fault as error:
        advice = "correct the table `list`, or permit the credential to read the list"
        return [_OF.error(f"the list of orders cannot be read: {error}", advice)]
    except TimeoutError:
        advice = "check that the list is fast enough, or request smaller pages"
        return [_OF.error(f"the list of orders does not respond within {within:g} s", advice)]
    untimed = sum(order.updated_at is None for order in page.orders)
    if page.unusable:
        return [
            _OF.error(f"{len(page.unusable)} elements of the list contain no usable order ID", "correct the key `id`")
        ]
    if untimed and options.declared.updated_at:
        example = f", such as {page.unread_time}" if page.unread_time else ""
        advice = "correct the key `updated_at`, or set `time` to the format"
        return [_OF.error(f"{untimed} elements of the list contain no readable time{example}", advice)]
    if behind := await polls.findings(settings.postgres_dsn.get_secret_value(), [settings.source]):
        return behind
    more = ", and another page follows" if page.next is not None or page.has_more else ""
    return [_OF.ok(f"the list of orders can be read: {len(page.orders)} orders on the first page of a day{more}")]
