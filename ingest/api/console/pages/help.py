"""The help, which explains the pages and the states, and lists the equivalent commands."""

from collections.abc import Sequence

from aiohttp import web

from ingest.api.console.frame import Frame, Page, Visit


class HelpPages:
    """`/console/help`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def pages(self) -> Sequence[Page]:
        """The pages."""
        return [Page("GET", "/help", self._show, "console")]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        return self._frame.render(visit, "help.html")
