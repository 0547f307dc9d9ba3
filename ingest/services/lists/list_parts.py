"""The list of orders of a source in a worker, and the parts that read it. Only imported for a source with a list."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from ingest.domain.fetch.listed import OrderList
from ingest.flow.followed_controls import SourceControls
from ingest.flow.pace.pace import Pace
from ingest.flow.ports import FleetPart
from ingest.services.lists.poller import Poller, YieldingList
from ingest.services.lists.polling import turns_of
from ingest.services.producers import open_producer
from ingest.services.workers.shared_parts import SharedParts
from ingest.sources.opening import open_quota
from ingest.sources.source import Source
from ingest.store.connections.pool import SourceRecords
from ingest.store.polls import Polls
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.lists.order_list import HttpOrderList
from ingest.upstream.quota.quota import FleetQuota

if TYPE_CHECKING:
    from ingest.settings import Settings


class ListPacing(msgspec.Struct, frozen=True):
    """Parts of the worker that decide when a page of the list may be requested.

    Attributes:
        pace: of the requests for orders.
        quota: of the source, if it has one.
        controls: of the source, by which its list may be held.
    """

    pace: Pace
    quota: FleetQuota | None
    controls: SourceControls


@asynccontextmanager
async def open_list_parts(
    settings: "Settings",
    source: Source,
    shared: SharedParts,
    metrics: WorkerMetrics,
    pacing: ListPacing,
) -> AsyncIterator[tuple[OrderList, Sequence[FleetPart]]]:
    """Open the list and the parts.

    Args:
        settings: of the source.
        source: whose list is read.
        shared: the parts that all sources of the process use.
        metrics: of the source.
        pacing: of the requests for orders. The list may have another quota.
    """
    options = source.order_list
    assert options is not None  # noqa: S101  otherwise, there is nothing to open
    name, now, records = shared.name, shared.clock.utc, SourceRecords(shared.store.of_source())
    async with AsyncExitStack() as stack:
        parts: list[FleetPart] = []
        quota = pacing.quota
        if options.quota is not None:
            # The time for which its requests wait is not shown, because no order waits.
            unseen = WorkerMetrics.on(worker_shared_metrics(1), 0)
            opening = open_quota(source.for_list, shared.queue, unseen, now, lambda _: None)
            _, quota = await stack.enter_async_context(opening)
            parts += [quota] if quota is not None else []
        listing = HttpOrderList.open(options, metrics.upstream_request, now, quota)
        listed = YieldingList(await stack.enter_async_context(listing), pacing.pace, pacing.controls, pacing.quota)
        if source.poll is not None:
            producer = await stack.enter_async_context(open_producer(settings))
            polls = Polls(records, source.name, name)
            turns = turns_of(settings, options, polls, records, producer, now)
            parts.append(Poller(polls, turns, listed, name, source.poll, metrics, now))
        yield listed, parts
