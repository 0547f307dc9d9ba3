"""The pages of retries, with groups and a filtered list."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aiohttp import web

from ingest.api.console.frame import ROOT, Frame, Page, Visit
from ingest.api.console.inputs import choices_of, cursor_in, inputs_of, sources_in
from ingest.api.console.live import LiveData
from ingest.api.console.pages.queues.chosen_entries import ChosenEntries
from ingest.api.console.templating import url
from ingest.api.http.failures import as_problems
from ingest.api.http.parameters import cursor_of, invalid_cursor
from ingest.api.source_connections import SourceConnections
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.orders.order_state import RetryEntry
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.operations.failed_orders.groups import GroupedEntries
from ingest.queue.operate.partition_retries import Position, RetryPage

_PATH = f"{ROOT}/retries"
_LIMIT = 100
_EXAMINED = 500
_SEARCH_SECONDS = 0.2
# Seconds that a page waits for the groups. They continue to arrive while it is open.
_WAIT = 0.1
_LONGEST_NAME = 400


class RetryPages:
    """`/console/retries`, except for changes."""

    def __init__(
        self, frame: Frame, live: LiveData, sources: Mapping[str, SourceConnections], groups: GroupSurveys
    ) -> None:
        self._frame = frame
        self._sources = sources
        self._groups = groups
        live.add("retry-groups", self._groups_part)

    def pages(self) -> Sequence[Page]:
        """The pages."""
        return [Page("GET", "/retries", self._list)]

    async def _list(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        chosen, names = ChosenEntries.of(form), sources_in(visit, form, self._sources)
        after = _position(cursor_in(form, tuple[str, str]))
        page = await self._page(names[0], chosen, after) if len(names) == 1 else RetryPage((), None, ())
        values = chosen.values()
        return self._frame.render(
            visit,
            "queues/retries.html",
            choices=choices_of(visit.permitted(sorted(self._sources))),
            reasons=[("", "Any reason"), *((reason.value, reason.value) for reason in RetryReason)],
            chosen=chosen,
            values=values,
            source=names[0] if len(names) == 1 else None,
            rows=page.entries if len(names) == 1 else None,
            missing=page.missing,
            grouped=await self._grouped(names) if chosen.is_everything else None,
            stream=url(f"{ROOT}/events/retry-groups", source=chosen.source),
            first=url(_PATH, **values) if form.has("cursor") else None,
            next=url(_PATH, **values, cursor=cursor_of(page.next)) if page.next else None,
        )

    async def _groups_part(self, visit: Visit) -> str:
        names = sources_in(visit, inputs_of(visit), self._sources)
        return self._frame.fragment(visit, "queues/retry_groups.html", grouped=await self._grouped(names))

    async def _grouped(self, names: Sequence[str]) -> GroupedEntries:
        with as_problems():
            return await self._groups.retries(names, wait=_WAIT)

    async def _page(self, source: str, chosen: ChosenEntries, after: Position) -> RetryPage:
        """Return the soonest retries that match, and where the next page begins, within a limited time."""
        selection, found = chosen.retries(), list[RetryEntry]()
        ends_at = time.monotonic() + _SEARCH_SECONDS
        with as_problems():
            while True:
                most = _LIMIT if chosen.is_everything else _EXAMINED
                page = await self._sources[source].retries.page(after, most, selection.filter.unlisted_fields)
                found += [entry for entry in page.entries if selection.matches(entry)]
                if page.next is None or len(found) >= _LIMIT or time.monotonic() > ends_at:
                    return replace(page, entries=found)
                after = page.next


def _position(cursor: tuple[str, str] | None) -> Position:
    if cursor is None:
        return Position()
    position = Position(*cursor)
    if not position.is_valid or len(position.name) > _LONGEST_NAME:
        raise invalid_cursor()
    return position
