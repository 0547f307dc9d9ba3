"""The pages that list dead letters or retries, with their groups and a filter."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from ingest.api.console.frame import ROOT, Frame, Page, Visit
from ingest.api.console.inputs import choices_of, inputs_of, sources_in
from ingest.api.console.live import LiveData
from ingest.api.console.pages.queues.chosen_entries import ChosenEntries
from ingest.api.console.pages.queues.entry_actions import actions_of
from ingest.api.console.parts import ConsoleParts, Pages
from ingest.api.console.templating import url
from ingest.api.http.parameters import cursor_of
from ingest.api.operations.selections import position_in
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import FailedEntry
from ingest.operations.failed_orders.entries import EntryPage, FailedEntries

_LIMIT = 100
# Entries that one step examines, and the seconds that a page may take for a filter that few entries match.
_EXAMINED = 500
_SEARCH_SECONDS = 0.2
# Seconds that a page waits for the groups. They continue to arrive while it is open.
_WAIT = 0.1


class EntryListPage(Pages):
    """`/console/dead-letters` or `/console/retries`."""

    def __init__(self, kind: EntryKind, frame: Frame, live: LiveData, parts: ConsoleParts) -> None:
        super().__init__(frame, live, parts)
        self._kind = kind
        self._events = f"{kind.noun.replace(' ', '-')}-groups"
        live.add(self._events, self._groups_part, f"{self._kind}.groups")

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [Page("GET", f"/{self._kind.path}", self._list, f"{self._kind}.list")]

    async def _list(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        chosen, names = ChosenEntries.of(form), sources_in(visit, form, self._sources)
        source = names[0] if len(names) == 1 else None
        page = after = None
        if source is not None:
            entries = self._sources[source].entries[self._kind]
            after = position_in(entries, form.text("cursor") or None)
            page = await _page(entries, chosen, after)
        path, values = f"{ROOT}/{self._kind.path}", chosen.values()
        return self._frame.render(
            visit,
            "queues/list.html",
            **self._words,
            choices=choices_of(visit.permitted(sorted(self._sources))),
            reasons=[("", "Any reason"), *((reason.value, reason.value) for reason in self._kind.reasons)],
            chosen=chosen,
            values=values,
            source=source,
            rows=page and page.entries,
            missing=page.missing if page else (),
            grouped=await self._grouped(names) if chosen.is_everything else None,
            stream=url(f"{ROOT}/events/{self._events}", source=chosen.source),
            first=url(path, **values) if after else None,
            next=url(path, **values, cursor=cursor_of(page.next)) if page and page.next else None,
        )

    async def _groups_part(self, visit: Visit) -> str:
        names = sources_in(visit, inputs_of(visit), self._sources)
        return self._frame.fragment(visit, "queues/groups.html", **self._words, grouped=await self._grouped(names))

    @property
    def _words(self) -> Mapping[str, Any]:
        return {"kind": self._kind, "actions": actions_of(self._kind)}

    async def _grouped(self, names: Sequence[str]) -> Any:
        return await self._parts.groups.of(self._kind, names, wait=_WAIT)


async def _page(entries: FailedEntries, chosen: ChosenEntries, after: Any) -> EntryPage:
    """Return the first entries that match, and where the next page begins, within a limited time."""
    selection, found = chosen.selection(), list[FailedEntry]()
    most = _LIMIT if chosen.is_everything else _EXAMINED
    ends_at = time.monotonic() + _SEARCH_SECONDS
    while True:
        page = await entries.page(selection, after, most)
        found += page.entries
        after = page.next
        if after is None or len(found) >= _LIMIT or time.monotonic() > ends_at:
            return page._replace(entries=found)
