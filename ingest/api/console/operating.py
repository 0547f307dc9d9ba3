"""The pages about orders, jobs, and the actions on sources and workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.api.console.frame import Frame, Page
from ingest.api.console.live import LiveData
from ingest.api.console.pages.backfilling import BackfillingPages
from ingest.api.console.pages.draining import DrainingPages
from ingest.api.console.pages.jobs import JobPages
from ingest.api.console.pages.orders.order_changes import OrderChangePages
from ingest.api.console.pages.orders.order_detail import OrderDetailPages
from ingest.api.console.pages.orders.order_jobs import OrderJobPages
from ingest.api.console.pages.orders.order_list import OrderListPages
from ingest.api.console.pages.orders.order_previews import OrderPreviewPages
from ingest.api.console.pages.pausing import PausingPages
from ingest.api.console.pages.queues.dead_letters import DeadLetterPages
from ingest.api.console.pages.queues.entry_changes import EntryChangePages
from ingest.api.console.pages.queues.entry_lists import EntryListPage
from ingest.api.operations.job_routes import LooksForJobs
from ingest.api.source_connections import SourceConnections
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.operations.control.control_access import ControlAccess
from ingest.operations.failed_orders.entry_counts import EntryCounts
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.operations.jobs.orders import OpenDecoder
from ingest.settings import Settings


@dataclass(frozen=True, slots=True)
class BulkParts:
    """The parts that the pages about many entries or orders use.

    Attributes:
        groups: The groups of all dead letters and retries.
        counts: The counts of selected dead letters and retries.
        decoders: Open the mapping and the transform of each source, by its name.
        runs: Runs the jobs that are requested here.
    """

    groups: GroupSurveys
    counts: EntryCounts
    decoders: Mapping[str, OpenDecoder]
    runs: LooksForJobs


def operating_pages(
    frame: Frame,
    live: LiveData,
    sources: Mapping[str, SourceConnections],
    settings: Mapping[str, Settings],
    access: ControlAccess,
    bulk: BulkParts,
) -> Sequence[Page]:
    """Return these pages.

    Args:
        frame: Renders them.
        live: Sends their live parts.
        sources: The connections of each source.
        settings: The settings of each source.
        access: The access to the controls, and to the database.
        bulk: The jobs that change many entries or orders.
    """
    return [
        *OrderListPages(frame, sources).pages(),
        *OrderDetailPages(frame, sources).pages(),
        *OrderChangePages(frame, sources, access).pages(),
        *(page for kind in EntryKind for page in EntryListPage(kind, frame, live, sources, bulk.groups).pages()),
        *DeadLetterPages(frame, sources).pages(),
        *EntryChangePages(frame, live, sources, bulk.counts, bulk.runs).pages(),
        *OrderJobPages(frame, sources, access, bulk.decoders, bulk.runs).pages(),
        *OrderPreviewPages(frame, sources, access, bulk.runs).pages(),
        *JobPages(frame, live, access).pages(),
        *PausingPages(frame, access, settings).pages(),
        *DrainingPages(frame, access).pages(),
        *BackfillingPages(frame, access, settings).pages(),
    ]
