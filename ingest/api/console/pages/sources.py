"""The live overview of all sources with their last hours, and the live state of each source."""

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.api.console.charts import charts_of
from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import inputs_of, source_in
from ingest.api.console.live import LiveData
from ingest.domain.masking import mask_url
from ingest.operations.state.history import History, total_of
from ingest.operations.state.snapshot import Snapshot
from ingest.operations.state.snapshots import Snapshots
from ingest.settings import Settings

_LONGEST = 24


class SourcePages:
    """`/console/`, `/console/sources` and `/console/sources/show`."""

    def __init__(
        self, live: LiveData, snapshots: Snapshots, history: History, settings: Mapping[str, Settings]
    ) -> None:
        self._snapshots = snapshots
        self._history = history
        self._settings = settings
        self._live = live

    def pages(self) -> Sequence[Page]:
        """The pages."""
        return [
            self._live.page("overview", "/", "sources/overview", self._overview, "sources.list"),
            self._live.page("sources", "/sources", "sources/list", self._listed, "sources.list"),
            self._live.page("source", "/sources/show", "sources/show", self._shown, "sources.list"),
        ]

    async def _listed(self, visit: Visit) -> dict[str, Any]:
        snapshot = (await self._snapshots.latest()).limited_to(visit.caller.may_use)
        return {"snapshot": snapshot, "settings": self._settings}

    async def _overview(self, visit: Visit) -> dict[str, Any]:
        model = await self._listed(visit)
        return {**model, **await self._charts(visit, model["snapshot"])}

    async def _shown(self, visit: Visit) -> dict[str, Any]:
        name = source_in(visit, inputs_of(visit), self._settings)
        snapshot = (await self._snapshots.latest()).limited_to(lambda source: source == name)
        settings = self._settings[name]
        return {
            "snapshot": snapshot,
            "source": snapshot.source(name),
            "settings": settings,
            "api": mask_url(settings.upstream_url) if settings.upstream_url else "",
            **await self._charts(visit, snapshot),
        }

    async def _charts(self, visit: Visit, snapshot: Snapshot) -> dict[str, Any]:
        """Return the charts of the sources in the snapshot, and their hours."""
        hours = _LONGEST if inputs_of(visit).text("hours") == str(_LONGEST) else 1
        found = await self._history.bars(snapshot, hours)
        bars = total_of(found[each.source] for each in snapshot.sources if each.source in found)
        return {"hours": hours, "charts": charts_of(bars, hours, snapshot.at)}
