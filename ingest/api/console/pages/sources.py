"""The live overview of all sources with their last hours, and the live state of each source."""

from collections.abc import Sequence
from typing import Any

from ingest.api.console.charts import charts_of
from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import inputs_of, source_in
from ingest.api.console.parts import Pages
from ingest.domain.masking import mask_url
from ingest.operations.state.history import total_of
from ingest.operations.state.snapshot import Snapshot

_LONGEST = 24


class SourcePages(Pages):
    """`/console/`, `/console/sources` and `/console/sources/show`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            self._live.page("overview", "/", "sources/overview", self._overview, "sources.list"),
            self._live.page("sources", "/sources", "sources/list", self._listed, "sources.list"),
            self._live.page("source", "/sources/show", "sources/show", self._shown, "sources.list"),
        ]

    async def _listed(self, visit: Visit) -> dict[str, Any]:
        snapshot = (await self._parts.snapshots.latest()).limited_to(visit.caller.may_use)
        return {"snapshot": snapshot, "settings": self._parts.settings_of}

    async def _overview(self, visit: Visit) -> dict[str, Any]:
        model = await self._listed(visit)
        return {**model, **await self._charts(visit, model["snapshot"])}

    async def _shown(self, visit: Visit) -> dict[str, Any]:
        name = source_in(visit, inputs_of(visit), self._parts.settings_of)
        snapshot = (await self._parts.snapshots.latest()).limited_to(lambda source: source == name)
        settings = self._parts.settings_of[name]
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
        found = await self._parts.history.bars(snapshot, hours)
        bars = total_of(found[each.source] for each in snapshot.sources if each.source in found)
        return {"hours": hours, "charts": charts_of(bars, hours, snapshot.at)}
