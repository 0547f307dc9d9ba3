"""The pages about orders, jobs, and the actions on sources and workers."""

from collections.abc import Mapping, Sequence

from ingest.api.console.frame import Frame, Page
from ingest.api.console.live import LiveData
from ingest.api.console.pages.backfilling import BackfillingPages
from ingest.api.console.pages.draining import DrainingPages
from ingest.api.console.pages.jobs import JobPages
from ingest.api.console.pages.orders.order_changes import OrderChangePages
from ingest.api.console.pages.orders.order_detail import OrderDetailPages
from ingest.api.console.pages.orders.order_list import OrderListPages
from ingest.api.console.pages.pausing import PausingPages
from ingest.api.source_connections import SourceConnections
from ingest.operations.control_access import ControlAccess
from ingest.settings import Settings


def operating_pages(
    frame: Frame,
    live: LiveData,
    sources: Mapping[str, SourceConnections],
    settings: Mapping[str, Settings],
    access: ControlAccess,
) -> Sequence[Page]:
    """Return these pages.

    Args:
        frame: renders them.
        live: sends their live parts.
        sources: the connections of each source.
        settings: of each source.
        access: to the controls, and to the database.
    """
    return [
        *OrderListPages(frame, sources).pages(),
        *OrderDetailPages(frame, sources).pages(),
        *OrderChangePages(frame, sources, access).pages(),
        *JobPages(frame, live, access).pages(),
        *PausingPages(frame, access, settings).pages(),
        *DrainingPages(frame, access).pages(),
        *BackfillingPages(frame, access, settings).pages(),
    ]
