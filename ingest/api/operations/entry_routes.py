"""Routes that list, group and change dead letters or retries, and that show and export dead letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import UNSET

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter
from ingest.api.documentation.operations_documentation import paging
from ingest.api.http.downloads import download, partial_file
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.problems import Problem, failure
from ingest.api.http.reading import reader_of
from ingest.api.http.requests import BodyLimits, json_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.selections import (
    CRITERIA,
    REPEATED,
    SELECTING,
    DeadLettersBody,
    RetriesBody,
    position_in,
    selection_in,
)
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.operating.jobs import JobKind
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.domain.source_name import UNNAMED
from ingest.operations.audit import audited, record_read
from ingest.operations.declared import DECLARED, EXPORT, READ_DEAD_LETTER
from ingest.operations.failed_orders.dead_letter_export import FORMATS, exported
from ingest.operations.failed_orders.entries import FailedEntries
from ingest.operations.failed_orders.entry_json import (
    DeadLetterList,
    EntryChange,
    GroupList,
    MissingPartition,
    RetryList,
    ShownDeadLetter,
    listed,
    shown,
)
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.operations.failed_orders.groups import shown_groups
from ingest.operations.json_types import response_of
from ingest.queue.operate.failed.dead_letter_pages import is_entry_id
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_dead_letters import Change
from ingest.store.audit import AuditLog

_LIMIT, _MOST = 100, 500
_BODIES: Mapping[EntryKind, type[DeadLettersBody | RetriesBody]] = {
    EntryKind.DEAD_LETTERS: DeadLettersBody,
    EntryKind.RETRIES: RetriesBody,
}
# In the audit log, including the criteria that are not given.
_ALWAYS_RECORDED: Mapping[str, Any] = {"ids": [], "reasons": [], "since": None, "until": None, "everything": False}
_LISTS = {
    kind: Documentation(
        text=f"{order} A page before the last one may contain fewer elements than the limit, or none.",
        parameters=[*paging(500), *SELECTING[kind]],
        schema=page,
    )
    for kind, order, page in (
        (EntryKind.RETRIES, "The soonest first.", RetryList),
        (EntryKind.DEAD_LETTERS, "The newest first, without documents.", DeadLetterList),
    )
}
_GROUPS = Documentation(
    text="The largest group first. Many entries are read in the background. Until `examined` reaches `total`, repeat the request.",
    schema=GroupList,
)
_NOTHING = "The body does not select anything, or contradicts itself. To select everything, set `everything`."
_CHANGES = {
    kind: Documentation(text=text, bodies={JSON: body}, schema=EntryChange, problems={422: _NOTHING})
    for kind, text, body in (
        (JobKind.RUN_NOW, "Workers read them within a second or two.", RetriesBody),
        (JobKind.DEAD_LETTER, "They become dead letters with the reason `attempts_exhausted`.", RetriesBody),
        (JobKind.REPLAY, "They go back into the queue with fresh attempts.", DeadLettersBody),
        (JobKind.DROP, "Permanently.", DeadLettersBody),
    )
}
_EXPORT = Documentation(
    text="A file with all dead letters that match and all their fields, partition by partition, the oldest first. If the download "
    "breaks off, `after` continues it. While partitions cannot be read, their dead letters are missing, the header `Missing-Partitions` "
    "names them as a list in JSON, and the name of the file contains `incomplete`.",
    parameters=[
        Parameter("format", "query", "The format of the file.", {"enum": [*FORMATS]}),
        Parameter(
            "after", "query", "The ID of the last dead letter of an incomplete download. The file begins after it."
        ),
        *SELECTING[EntryKind.DEAD_LETTERS],
    ],
    response="JSON lines or CSV.",
    schema=None,
    others=dict.fromkeys(FORMATS.values(), TEXT),
)
_SHOW = Documentation(
    text="With all its fields, including its document.",
    parameters=[Parameter("entry", "path", "The dead letter's own ID.", is_required=True)],
    schema=ShownDeadLetter,
)


@dataclass(frozen=True, slots=True)
class EntryRoutes:
    """`/v1/dead-letters` or `/v1/retries`, and the routes below it.

    Attributes:
        kind: The kind of the entries.
        entries: The entries of the source. They do not wait for Redis.
        audit_log: Records changes.
        limits: The limits of bodies.
        groups: The groups of all sources.
        source: The name of the source in the responses.
        others: Further routes of this kind.
    """

    kind: EntryKind
    entries: FailedEntries
    audit_log: AuditLog
    limits: BodyLimits
    groups: GroupSurveys
    source: str = UNNAMED
    others: Sequence[Route] = ()

    def routes(self) -> Sequence[Route]:
        """The routes."""
        path = f"/v1/{self.kind.path}"
        return [
            Route("GET", path, f"{self.kind}.list", self.page, _LISTS[self.kind]),
            Route("GET", f"{path}/groups", f"{self.kind}.groups", self.grouped, _GROUPS),
            *self.others,
            *(
                Route("POST", f"{path}/{change.path}", change, partial(self.change, change), described)
                for change, described in _CHANGES.items()
                if change.entries is self.kind
            ),
        ]

    async def page(self, request: web.Request, _: Caller) -> web.Response:
        """The next entries. A page may contain fewer matching entries than the limit, or none."""
        given = Parameters(request, ("limit", "cursor", *CRITERIA), REPEATED[self.kind])
        limit, after = given.limit(_LIMIT, _MOST), position_in(self.entries, given.text("cursor"))
        selection = selection_in(given, self.kind)
        page = await self.entries.page(selection, after, limit)
        found = [listed(entry, self.source) for entry in page.entries]
        next_cursor = None if page.next is None else cursor_of(page.next)
        missing = _missing(page.missing)
        return json_response({self.kind.value: found, "next_cursor": next_cursor, "missing_partitions": missing})

    async def grouped(self, request: web.Request, _: Caller) -> web.Response:
        """The entries by reason and error shape."""
        Parameters(request, ())
        return json_response(shown_groups(await self.groups.of(self.kind, [self.source])))

    async def change(self, kind: JobKind, request: web.Request, caller: Caller) -> web.Response:
        """Change the entries that a request selects, or only count them."""
        body = await json_body(request, self.limits, _BODIES[self.kind])
        selection = body.selection()
        if body.dry_run:
            survey = await self.entries.survey(selection)
            missing = _missing(survey.unavailable)
            return json_response(
                EntryChange(dry_run=True, count=survey.count, missing_partitions=missing, reasons=dict(survey.reasons))
            )
        recorded = {**_ALWAYS_RECORDED, **selection_as_dict(selection)}
        async with audited(self.audit_log, caller.name, DECLARED[kind], recorded) as operation:

            def count(change: Change) -> None:
                operation.count = change.done

            change = await self.entries.change(kind, selection, actor=caller.name, on_progress=count)
        gone = change.gone if self.kind is EntryKind.DEAD_LETTERS else UNSET
        missing = _missing(change.unavailable)
        return json_response(EntryChange(dry_run=False, count=change.done, missing_partitions=missing, gone=gone))


def _missing(troubles: Sequence[PartitionTrouble]) -> list[MissingPartition]:
    return [response_of(MissingPartition, each) for each in troubles]


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
            Route("GET", "/v1/dead-letters/export", "dead_letters.export", self.export, _EXPORT),
            Route(
                "GET",
                "/v1/dead-letters/{entry}",
                "dead_letters.read",
                self.show,
                _SHOW,
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
