"""Routes that show and export dead letters."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from ingest.api.http.downloads import download, partial_file
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters
from ingest.api.http.problems import Problem, failure
from ingest.api.http.reading import reader_of
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.entry_routes import EXPORT_FILE, SHOW_DEAD_LETTER
from ingest.api.operations.selections import CRITERIA, REPEATED, selection_in
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.domain.source_name import UNNAMED
from ingest.operations.audit import record_read
from ingest.operations.declared import EXPORT, READ_DEAD_LETTER
from ingest.operations.failed_orders.dead_letter_export import FORMATS, exported
from ingest.operations.failed_orders.entry_json import shown
from ingest.queue.operate.failed.dead_letter_pages import is_entry_id
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.store.audit import AuditLog


@dataclass(frozen=True, slots=True)
class DeadLetterRoutes:
    """The routes of dead letters that retries do not have.

    Attributes:
        dead_letters: The dead letters of the queue, constructed with `refuse_to_wait`.
        audit_log: Records who reads dead letters.
        source: The name of the source in the responses.
    """

    dead_letters: DeadLetters
    audit_log: AuditLog
    source: str = UNNAMED

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/dead-letters/export", "dead_letters.export", self.export, EXPORT_FILE),
            Route(
                "GET",
                "/v1/dead-letters/{entry}",
                "dead_letters.read",
                self.show,
                SHOW_DEAD_LETTER,
                is_large=True,
            ),
        ]

    async def export(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """A file with all dead letters that match, the oldest first."""
        given = Parameters(request, ("format", "after", *CRITERIA), REPEATED[EntryKind.DEAD_LETTERS])
        file_format = given.text("format") or "jsonl"
        if file_format not in FORMATS:
            raise Problem(422, "invalid_parameter", f"format: one of {', '.join(FORMATS)}", parameter="format")
        after = given.text("after")
        if after is not None and not is_entry_id(after.partition(":")[0]):
            raise Problem(422, "invalid_parameter", "after: the ID of a dead letter", parameter="after")
        selection = selection_in(given, EntryKind.DEAD_LETTERS)
        pages, missing = await exported(self.dead_letters, selection, self.source, file_format, after)
        recorded = {**selection_as_dict(selection), "after": after, "format": file_format}
        await record_read([self.audit_log], reader_of(request, caller), EXPORT, recorded)
        name, headers = partial_file("dead-letters", file_format, missing)
        return await download(request, pages, name, FORMATS[file_format], headers)

    async def show(self, request: web.Request, caller: Caller) -> web.Response:
        """One dead letter with all its fields."""
        Parameters(request, ())
        entry = await self.dead_letters.get(request.match_info["entry"])
        if entry is None:
            raise failure("dead_letter_not_found", "there is no dead letter with this ID")
        selection = {"ids": [entry.entry_id], "order_id": entry.order_id}
        await record_read([self.audit_log], reader_of(request, caller), READ_DEAD_LETTER, selection)
        return json_response(shown(entry, self.source, caller.sees))
