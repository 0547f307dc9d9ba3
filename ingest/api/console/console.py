"""The pages, live data and files of the console, with the parts that they use."""

from collections.abc import Callable, Sequence

from aiohttp import web

from ingest.api.console.frame import ROOT, Frame, Page, Visit
from ingest.api.console.live import LiveData
from ingest.api.console.pages.audit import AuditPages
from ingest.api.console.pages.backfilling import BackfillingPages
from ingest.api.console.pages.draining import DrainingPages
from ingest.api.console.pages.help import HelpPages
from ingest.api.console.pages.jobs import JobPages
from ingest.api.console.pages.login import LoginPages
from ingest.api.console.pages.orders.order_changes import OrderChangePages
from ingest.api.console.pages.orders.order_detail import OrderDetailPages
from ingest.api.console.pages.orders.order_jobs import OrderJobPages
from ingest.api.console.pages.orders.order_list import OrderListPages
from ingest.api.console.pages.orders.order_previews import OrderPreviewPages
from ingest.api.console.pages.pausing import PausingPages
from ingest.api.console.pages.queues.dead_letters import DeadLetterPages
from ingest.api.console.pages.queues.entry_changes import EntryChangePages
from ingest.api.console.pages.queues.entry_lists import EntryListPage
from ingest.api.console.pages.settings import SettingsPages
from ingest.api.console.pages.sources import SourcePages
from ingest.api.console.pages.workers import WorkerPages
from ingest.api.console.parts import ConsoleParts, Pages
from ingest.api.console.static_files import StaticFiles
from ingest.api.console.visitors import Visitors
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits
from ingest.api.http.routing import Caller, Route
from ingest.domain.deliveries.entry_kind import EntryKind

_PAGES: Sequence[type[Pages]] = (
    *(SourcePages, WorkerPages, AuditPages, SettingsPages, HelpPages),
    *(OrderListPages, OrderDetailPages, OrderChangePages, OrderJobPages, OrderPreviewPages),
    *(DeadLetterPages, EntryChangePages, JobPages, PausingPages, DrainingPages, BackfillingPages),
)


class Console:
    """The console of one process.

    Args:
        visitors: Identifies who sends a request.
        parts: The parts that its pages use. An attribute.
    """

    def __init__(self, visitors: Visitors, parts: ConsoleParts) -> None:
        self._visitors = visitors
        self.parts = parts

    def routes(self, limits: BodyLimits, is_stopping: Callable[[], bool]) -> Sequence[Route]:
        """Return all routes.

        Args:
            limits: The limits of forms.
            is_stopping: Whether streams of events are to end.
        """
        files = StaticFiles(ROOT)
        frame = Frame(self._visitors, files, limits)
        live = LiveData(frame, is_stopping)
        login = LoginPages(frame, self._visitors, limits)
        unknown = Page("GET", "/{tail:.*}", _unknown, "console")
        all_pages = [*self.pages(frame, live), *login.pages(), *live.pages(), unknown]
        return [
            *files.routes(),
            *login.routes(),
            Route("GET", ROOT, None, _to_root),
            *frame.routes(all_pages),
        ]

    def pages(self, frame: Frame, live: LiveData) -> Sequence[Page]:
        """Return all pages except the login, and add their live parts."""
        lists = [EntryListPage(kind, frame, live, self.parts) for kind in EntryKind]
        others = [make(frame, live, self.parts) for make in _PAGES]
        return [page for each in (*lists, *others) for page in each.pages()]


async def _to_root(_: web.Request, __: Caller) -> web.StreamResponse:
    return web.Response(status=308, headers={"Location": f"{ROOT}/"})


async def _unknown(_: Visit) -> web.StreamResponse:
    raise Problem(404, "no_such_page", "there is no page at this address")
