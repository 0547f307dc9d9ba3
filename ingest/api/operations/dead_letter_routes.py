"""Routes that list, show, replay and drop dead letters."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from ingest.api.documentation import entry_documentation as documentation
from ingest.api.http.downloads import download
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of, invalid_cursor
from ingest.api.http.problems import Problem
from ingest.api.http.reading import reader_of
from ingest.api.http.requests import BodyLimits
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.selections import Changes, DeadLettersBody, entry_filter
from ingest.domain.api_key import Scope
from ingest.domain.deliveries.dead_letter import InvalidSelection, Selection
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.domain.source_name import UNNAMED
from ingest.operations.audit import Operation, record_read
from ingest.operations.failed_orders.dead_letter_export import FORMATS, exported
from ingest.operations.failed_orders.dead_letter_json import as_object
from ingest.operations.failed_orders.dead_letters import EXPORT, READ
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.queue.operate.dead_letter_pages import is_entry_id
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.partition_dead_letters import Change
from ingest.store.audit import AuditLog

_LIMIT, _MOST = 100, 500
_CRITERIA, _REPEATED = ("since", "until", "text", "shape"), ("id", "reason", "attribute")


@dataclass(frozen=True, slots=True)
class DeadLetterRoutes:
    """`/v1/dead-letters` and the routes below it.

    Attributes:
        dead_letters: The dead letters of the queue, constructed with `refuse_to_wait`.
        audit_log: Records changes.
        limits: The limits of bodies.
        groups: The groups of all sources.
        source: The name of the source in the responses.
    """

    dead_letters: DeadLetters
    audit_log: AuditLog
    limits: BodyLimits
    groups: GroupSurveys
    source: str = UNNAMED

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/dead-letters", Scope.READ, self.page, documentation.DEAD_LETTERS),
            Route("GET", "/v1/dead-letters/groups", Scope.READ, self.grouped, documentation.DEAD_LETTER_GROUPS),
            Route("GET", "/v1/dead-letters/export", Scope.READ, self.export, documentation.EXPORT),
            Route(
                "GET", "/v1/dead-letters/{entry}", Scope.READ, self.show, documentation.SHOW_DEAD_LETTER, is_large=True
            ),
            Route("POST", "/v1/dead-letters/replay", Scope.OPERATE, self.replay, documentation.REPLAY),
            Route("POST", "/v1/dead-letters/drop", Scope.OPERATE, self.drop, documentation.DROP),
        ]

    async def page(self, request: web.Request, _: Caller) -> web.Response:
        """The next dead letters, the newest first, without documents and unknown fields.

        A page may contain fewer matching dead letters, or none.
        """
        given = Parameters(request, ("limit", "cursor", *_CRITERIA), _REPEATED)
        limit, before = given.limit(_LIMIT, _MOST), given.cursor(str)
        if before is not None and not is_entry_id(before.removeprefix("(")):
            raise invalid_cursor()
        selection = _selection(given)
        with as_problems():
            page = await self.dead_letters.summaries(selection, before, limit)
        shown = [as_object(entry, self.source) for entry in page.entries]
        for each in shown:
            del each["fields"]
        return json_response(
            {
                "dead_letters": shown,
                "next_cursor": None if page.next is None else cursor_of(page.next),
                "missing_partitions": [each.as_dict() for each in page.missing],
            }
        )

    async def grouped(self, request: web.Request, _: Caller) -> web.Response:
        """The dead letters by reason and error shape."""
        Parameters(request, ())
        with as_problems():
            return json_response((await self.groups.dead_letters([self.source])).as_dict())

    async def export(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """A file with all dead letters that match, the oldest first."""
        given = Parameters(request, ("format", "after", *_CRITERIA), _REPEATED)
        file_format = given.text("format") or "jsonl"
        if file_format not in FORMATS:
            raise Problem(422, "invalid_parameter", f"format: one of {', '.join(FORMATS)}", parameter="format")
        after = given.text("after")
        if after is not None and not is_entry_id(after.partition(":")[0]):
            raise Problem(422, "invalid_parameter", "after: the ID of a dead letter", parameter="after")
        selection = _selection(given)
        with as_problems():
            pages = await exported(self.dead_letters, selection, self.source, file_format, after)
        recorded = {**selection_as_dict(selection), "after": after, "format": file_format}
        await record_read([self.audit_log], reader_of(request, caller), EXPORT, recorded)
        return await download(request, pages, f"dead-letters.{file_format}", FORMATS[file_format], {})

    async def show(self, request: web.Request, caller: Caller) -> web.Response:
        """One dead letter with all its fields."""
        Parameters(request, ())
        with as_problems():
            entry = await self.dead_letters.get(request.match_info["entry"])
        if entry is None:
            raise Problem(404, "dead_letter_not_found", "there is no dead letter with this ID")
        selection = {"ids": [entry.entry_id], "order_id": entry.order_id}
        await record_read([self.audit_log], reader_of(request, caller), READ, selection)
        return json_response(as_object(entry, self.source))

    async def replay(self, request: web.Request, caller: Caller) -> web.Response:
        """Put the dead letters that match back into the queue."""
        return await self._change(request, caller, "dead_letters.replay", self.dead_letters.replay)

    async def drop(self, request: web.Request, caller: Caller) -> web.Response:
        """Delete the dead letters that match."""
        return await self._change(request, caller, "dead_letters.drop", self.dead_letters.drop)

    async def _change(
        self, request: web.Request, caller: Caller, action: str, change: Callable[..., Awaitable[Change]]
    ) -> web.Response:
        async def apply(selection: Selection, operation: Operation) -> Mapping[str, int]:
            def count(change: Change) -> None:
                operation.count = change.done

            result = await change(selection, on_progress=count)
            return {"count": result.done, "gone": result.gone}

        changes = Changes(self.audit_log, self.limits, DeadLettersBody, self.dead_letters.survey)
        return await changes.respond(request, caller, action, apply)


def _selection(given: Parameters) -> Selection:
    ids, reasons, chosen = given.texts("id"), given.texts("reason"), entry_filter(given)
    since, until = given.time("since"), given.time("until")
    everything = not (ids or reasons or since or until or chosen)
    try:
        return Selection(ids, reasons, since, until, everything, chosen)
    except InvalidSelection as error:
        raise Problem(422, "invalid_parameter", str(error), parameter="until") from error
