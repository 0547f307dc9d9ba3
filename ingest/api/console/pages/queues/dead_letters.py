"""The pages of dead letters, with groups, a filtered list, all fields of one dead letter, and a download."""

import time
from collections.abc import Mapping, Sequence

from aiohttp import web

from ingest.api.console.frame import HEADERS, ROOT, Frame, Page, Visit
from ingest.api.console.inputs import choices_of, cursor_in, inputs_of, source_in, sources_in
from ingest.api.console.live import LiveData
from ingest.api.console.pages.queues.chosen_entries import ChosenEntries
from ingest.api.console.templating import url
from ingest.api.http.downloads import download
from ingest.api.http.failures import as_problems
from ingest.api.http.parameters import cursor_of, invalid_cursor
from ingest.api.http.problems import Problem
from ingest.api.http.reading import reader_of
from ingest.api.source_connections import SourceConnections
from ingest.domain.api_key import Scope
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.operations.audit import record_read
from ingest.operations.failed_orders.dead_letter_export import FORMATS, exported
from ingest.operations.failed_orders.dead_letter_json import as_object
from ingest.operations.failed_orders.dead_letters import EXPORT, READ
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.operations.failed_orders.groups import GroupedEntries
from ingest.queue.operate.dead_letter_pages import is_entry_id
from ingest.queue.operate.dead_letters import DeadLetterList

_PATH = f"{ROOT}/dead-letters"
_LIMIT = 100
# Entries that one step examines, and the seconds that a page may take for a filter that few entries match.
_EXAMINED = 500
_SEARCH_SECONDS = 0.2
# Seconds that a page waits for the groups. They continue to arrive while it is open.
_WAIT = 0.1
_LONGEST_FIELD = 64 * 1024


class DeadLetterPages:
    """`/console/dead-letters` and the pages below it, except for changes."""

    def __init__(
        self, frame: Frame, live: LiveData, sources: Mapping[str, SourceConnections], groups: GroupSurveys
    ) -> None:
        self._frame = frame
        self._sources = sources
        self._groups = groups
        live.add("dead-letter-groups", self._groups_part)

    def pages(self) -> Sequence[Page]:
        """The pages."""
        return [
            Page("GET", "/dead-letters", self._list),
            Page("GET", "/dead-letters/show", self._show, is_large=True),
            Page("GET", "/dead-letters/export", self._export, Scope.OPERATE),
        ]

    async def _list(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        chosen, names = ChosenEntries.of(form), sources_in(visit, form, self._sources)
        before = cursor_in(form, str)
        if before is not None and not is_entry_id(before.removeprefix("(")):
            raise invalid_cursor()
        page = await self._page(names[0], chosen, before) if len(names) == 1 else DeadLetterList((), None)
        values = chosen.values()
        return self._frame.render(
            visit,
            "queues/dead_letters.html",
            choices=choices_of(visit.permitted(sorted(self._sources))),
            reasons=[("", "Any reason"), *((reason.value, reason.value) for reason in DeadReason)],
            chosen=chosen,
            values=values,
            source=names[0] if len(names) == 1 else None,
            rows=page.entries if len(names) == 1 else None,
            missing=page.missing,
            grouped=await self._grouped(names) if chosen.is_everything else None,
            stream=url(f"{ROOT}/events/dead-letter-groups", source=chosen.source),
            first=url(_PATH, **values) if before else None,
            next=url(_PATH, **values, cursor=cursor_of(page.next)) if page.next else None,
        )

    async def _groups_part(self, visit: Visit) -> str:
        names = sources_in(visit, inputs_of(visit), self._sources)
        return self._frame.fragment(visit, "queues/dead_letter_groups.html", grouped=await self._grouped(names))

    async def _grouped(self, names: Sequence[str]) -> GroupedEntries:
        with as_problems():
            return await self._groups.dead_letters(names, wait=_WAIT)

    async def _page(self, source: str, chosen: ChosenEntries, before: str | None) -> DeadLetterList:
        """Return the newest dead letters that match, and where the next page begins, within a limited time."""
        selection, found = chosen.dead_letters(), list[DeadLetterEntry]()
        ends_at = time.monotonic() + _SEARCH_SECONDS
        with as_problems():
            while True:
                most = _LIMIT if chosen.is_everything else _EXAMINED
                page = await self._sources[source].dead_letters.summaries(selection, before, most)
                found += page.entries
                before = page.next
                if before is None or len(found) >= _LIMIT or time.monotonic() > ends_at:
                    return page._replace(entries=found)

    async def _show(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        source = source_in(visit, form, self._sources)
        with as_problems():
            entry = await self._sources[source].dead_letters.get(form.text("id"))
        if entry is None:
            raise Problem(
                404, "dead_letter_not_found", "there is no such dead letter: it was replayed, dropped or erased"
            )
        audit_log, recorded = self._sources[source].audit_log, {"ids": [entry.entry_id], "order_id": entry.order_id}
        await record_read([audit_log], reader_of(visit.request, visit.caller), READ, recorded)
        fields = as_object(entry, source)["fields"]
        document = fields.pop("document", None)
        return self._frame.render(
            visit,
            "queues/dead_letter.html",
            source=source,
            entry=entry,
            fields={name: value[:_LONGEST_FIELD] for name, value in fields.items()},
            document=document[:_LONGEST_FIELD] if document and visit.may(Scope.OPERATE) else None,
        )

    async def _export(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        source, chosen = source_in(visit, form, self._sources), ChosenEntries.of(form)
        file_format = "csv" if form.text("format") == "csv" else "jsonl"
        with as_problems():
            parts = await exported(self._sources[source].dead_letters, chosen.dead_letters(), source, file_format)
        audit_log = self._sources[source].audit_log
        recorded = {**selection_as_dict(chosen.dead_letters()), "format": file_format}
        await record_read([audit_log], reader_of(visit.request, visit.caller), EXPORT, recorded)
        name = f"dead-letters.{file_format}"
        return await download(visit.request, parts, name, FORMATS[file_format], HEADERS)
