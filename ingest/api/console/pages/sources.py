"""The live state of each source, with its queue, quota, limits, pause, circuit and polling."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from ingest.api.console.charts import chart_of
from ingest.api.console.frame import Frame, Page, Visit
from ingest.api.console.inputs import inputs_of, source_in
from ingest.api.console.live import LiveData
from ingest.domain.masking import mask_url
from ingest.operations.state.snapshot import in_queue
from ingest.operations.state.snapshots import Snapshots
from ingest.settings import Settings


class SourcePages:
    """`/console/sources` and `/console/sources/show`."""

    def __init__(self, frame: Frame, live: LiveData, snapshots: Snapshots, settings: Mapping[str, Settings]) -> None:
        self._frame = frame
        self._snapshots = snapshots
        self._settings = settings
        live.add("sources", self._list_part, "sources.list")
        live.add("source", self._part, "sources.list")

    def pages(self) -> Sequence[Page]:
        """The pages."""
        return [
            Page("GET", "/sources", self._list, "sources.list"),
            Page("GET", "/sources/show", self._show, "sources.list"),
        ]

    async def _list(self, visit: Visit) -> web.StreamResponse:
        return self._frame.render(visit, "sources/list.html", **await self._listed(visit))

    async def _list_part(self, visit: Visit) -> str:
        return self._frame.fragment(visit, "sources/list_part.html", **await self._listed(visit))

    async def _show(self, visit: Visit) -> web.StreamResponse:
        return self._frame.render(visit, "sources/show.html", **await self._shown(visit))

    async def _part(self, visit: Visit) -> str:
        return self._frame.fragment(visit, "sources/show_part.html", **await self._shown(visit))

    async def _listed(self, visit: Visit) -> dict[str, Any]:
        snapshot = (await self._snapshots.latest()).limited_to(visit.caller.may_use)
        return {"snapshot": snapshot, "sources": snapshot.sources, "settings": self._settings}

    async def _shown(self, visit: Visit) -> dict[str, Any]:
        name = source_in(visit, inputs_of(visit), self._settings)
        snapshot = (await self._snapshots.latest()).limited_to(lambda source: source == name)
        source, trend, settings = snapshot.source(name), snapshot.trend_of(name), self._settings[name]
        return {
            "snapshot": snapshot,
            "source": source,
            "settings": settings,
            "api": mask_url(settings.upstream_url) if settings.upstream_url else "",
            "in_queue": None if source is None else in_queue(source.queue),
            "charts": {
                "arrived": chart_of([point.arrived for point in trend]),
                "stored": chart_of([point.stored for point in trend]),
                "in_queue": chart_of([point.in_queue for point in trend]),
            },
        }
