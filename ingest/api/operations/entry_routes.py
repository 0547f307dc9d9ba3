"""Routes that list, group and change dead letters or retries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import UNSET

from ingest.api.documentation import entry_documentation as documentation
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.requests import BodyLimits, json_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.selections import CRITERIA, REPEATED, DeadLettersBody, RetriesBody, position_in, selection_in
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.operating.jobs import JobKind
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.domain.source_name import UNNAMED
from ingest.operations.audit import audited
from ingest.operations.declared import DECLARED
from ingest.operations.failed_orders.entries import FailedEntries
from ingest.operations.failed_orders.entry_json import EntryChange, MissingPartition, listed
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.operations.failed_orders.groups import shown_groups
from ingest.operations.json_types import response_of
from ingest.queue.operate.failed.partition_dead_letters import Change
from ingest.store.audit import AuditLog

_LIMIT, _MOST = 100, 500
_BODIES: Mapping[EntryKind, type[DeadLettersBody | RetriesBody]] = {
    EntryKind.DEAD_LETTERS: DeadLettersBody,
    EntryKind.RETRIES: RetriesBody,
}
# In the audit log, including the criteria that are not given.
_ALWAYS_RECORDED: Mapping[str, Any] = {"ids": [], "reasons": [], "since": None, "until": None, "everything": False}


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
            Route("GET", path, f"{self.kind}.list", self.page, documentation.LISTS[self.kind]),
            Route("GET", f"{path}/groups", f"{self.kind}.groups", self.grouped, documentation.GROUPS),
            *self.others,
            *(
                Route("POST", f"{path}/{change.path}", change, partial(self.change, change), described)
                for change, described in documentation.CHANGES.items()
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
                EntryChange(
                    dry_run=True,
                    count=survey.count,
                    missing_partitions=missing,
                    reasons=dict(survey.reasons),
                )
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
