"""The pages, live data and files of the console, with the parts that they use."""

from collections.abc import Callable, Mapping, Sequence

from aiohttp import web

from ingest.api.console.frame import ROOT, Frame, Page, Visit
from ingest.api.console.live import LiveData
from ingest.api.console.operating import BulkParts, operating_pages
from ingest.api.console.pages.audit import AuditPages
from ingest.api.console.pages.help import HelpPages
from ingest.api.console.pages.login import LoginPages
from ingest.api.console.pages.settings import SettingsPages
from ingest.api.console.pages.sources import SourcePages
from ingest.api.console.pages.workers import WorkerPages
from ingest.api.console.static_files import StaticFiles
from ingest.api.console.visitors import Visitors
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits
from ingest.api.http.routing import Caller, Route
from ingest.api.source_connections import SourceConnections
from ingest.operations.control.control_access import ControlAccess
from ingest.operations.state.history import History
from ingest.operations.state.snapshots import Snapshots
from ingest.settings import Settings


class Console:
    """The console of one process.

    Args:
        visitors: Identifies who sends a request.
        settings: The settings of the process.
        settings_of: The settings of each source.
        sources: The connections of each source.
        snapshots: The state of all sources.
        history: The last hours of all sources. An attribute.
        access: The access to the controls.
        bulk: The jobs that change many entries or orders.
    """

    def __init__(
        self,
        visitors: Visitors,
        settings: Settings,
        settings_of: Mapping[str, Settings],
        sources: Mapping[str, SourceConnections],
        snapshots: Snapshots,
        history: History,
        access: ControlAccess,
        bulk: BulkParts,
    ) -> None:
        self._visitors = visitors
        self._settings = settings
        self._settings_of = settings_of
        self._sources = sources
        self._snapshots = snapshots
        self.history = history
        self._access = access
        self._bulk = bulk

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
        return [
            *SourcePages(live, self._snapshots, self.history, self._settings_of).pages(),
            *WorkerPages(live, self._snapshots).pages(),
            *AuditPages(frame, self._access.pool, self._settings_of).pages(),
            *SettingsPages(frame, self._settings, self._settings_of).pages(),
            *HelpPages(frame).pages(),
            *operating_pages(frame, live, self._sources, self._settings_of, self._access, self._bulk),
        ]


async def _to_root(_: web.Request, __: Caller) -> web.StreamResponse:
    return web.Response(status=308, headers={"Location": f"{ROOT}/"})


async def _unknown(_: Visit) -> web.StreamResponse:
    raise Problem(404, "no_such_page", "there is no page at this address")
