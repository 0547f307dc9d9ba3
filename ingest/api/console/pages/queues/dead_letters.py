"""The pages that show all fields of one dead letter, and download many."""

from collections.abc import Sequence

from aiohttp import web

from ingest.api.console.frame import HEADERS, Page, Visit
from ingest.api.console.inputs import inputs_of, source_in
from ingest.api.console.pages.queues.chosen_entries import ChosenEntries
from ingest.api.console.parts import Pages
from ingest.api.http.downloads import download, partial_file
from ingest.api.http.problems import failure
from ingest.api.http.reading import reader_of
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.operations.audit import record_read
from ingest.operations.declared import EXPORT, READ_DEAD_LETTER
from ingest.operations.failed_orders.dead_letter_export import FORMATS, exported
from ingest.operations.failed_orders.entry_json import shown

_LONGEST_FIELD = 64 * 1024


class DeadLetterPages(Pages):
    """The pages of dead letters that retries do not have."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("GET", "/dead-letters/show", self._show, "dead_letters.read", is_large=True),
            Page("GET", "/dead-letters/export", self._export, "dead_letters.export"),
        ]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        source = source_in(visit, form, self._sources)
        entry = await self._sources[source].dead_letters.get(form.text("id"))
        if entry is None:
            raise failure("dead_letter_not_found", "there is no such dead letter: it was replayed, dropped or erased")
        audit_log, recorded = self._sources[source].audit_log, {"ids": [entry.entry_id], "order_id": entry.order_id}
        await record_read([audit_log], reader_of(visit.request, visit.caller), READ_DEAD_LETTER, recorded)
        fields = shown(entry, source, visit.caller.sees).fields
        document = fields.pop("document", None)
        return self._frame.render(
            visit,
            "queues/dead_letter.html",
            source=source,
            entry=entry,
            fields={name: value[:_LONGEST_FIELD] for name, value in fields.items()},
            document=document[:_LONGEST_FIELD] if document else None,
        )

    async def _export(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        source, chosen = source_in(visit, form, self._sources), ChosenEntries.of(form)
        file_format = "csv" if form.text("format") == "csv" else "jsonl"
        parts, missing = await exported(self._sources[source].dead_letters, chosen.selection(), source, file_format)
        audit_log = self._sources[source].audit_log
        recorded = {**selection_as_dict(chosen.selection()), "format": file_format}
        await record_read([audit_log], reader_of(visit.request, visit.caller), EXPORT, recorded)
        name, headers = partial_file("dead-letters", file_format, missing)
        return await download(visit.request, parts, name, FORMATS[file_format], {**HEADERS, **headers})
