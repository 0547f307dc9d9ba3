"""The live overview of arrivals, outcomes, queues, latency and the state of every source."""

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from ingest.api.console.charts import chart_of
from ingest.api.console.frame import Frame, Page, Visit
from ingest.api.console.live import LiveData
from ingest.operations.state.snapshot import in_queue
from ingest.operations.state.snapshots import Snapshots


class OverviewPages:
    """`/console/`."""

    def __init__(self, frame: Frame, live: LiveData, snapshots: Snapshots) -> None:
        self._frame = frame
        self._snapshots = snapshots
        live.add("overview", self._part, "sources.list")

    def pages(self) -> Sequence[Page]:
        """The pages."""
        return [Page("GET", "/", self._show, "sources.list")]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        return self._frame.render(visit, "overview.html", **await self._model(visit))

    async def _part(self, visit: Visit) -> str:
        return self._frame.fragment(visit, "parts/overview.html", **await self._model(visit))

    async def _model(self, visit: Visit) -> dict[str, Any]:
        snapshot = (await self._snapshots.latest()).limited_to(visit.caller.may_use)
        return {
            "snapshot": snapshot,
            "sources": snapshot.sources,
            "in_queue": in_queue(snapshot.queue),
            "charts": {
                "arrived": chart_of([point.arrived for point in snapshot.trend]),
                "stored": chart_of([point.stored for point in snapshot.trend]),
                "in_queue": chart_of([point.in_queue for point in snapshot.trend]),
            },
        }
