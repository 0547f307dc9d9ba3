"""The help, which explains the pages and the states, and lists the equivalent commands."""

from collections.abc import Sequence

from aiohttp import web

from ingest.api.console.frame import Page, Visit
from ingest.api.console.parts import Pages


class HelpPages(Pages):
    """`/console/help`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [Page("GET", "/help", self._show, "console")]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        return self._frame.render(visit, "help.html")
