"""`GET /v1/audit` lists the manual changes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from aiohttp import web

from ingest.api.documentation.documentation import Documentation, Parameter
from ingest.api.documentation.operations_documentation import TIME, paging
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller, Route
from ingest.domain.operating.audited_operation import AuditFilter
from ingest.operations.audit_trail import MOST_LISTED, ShownOperation, shown
from ingest.operations.json_types import page_of
from ingest.store.audit_reading import audited_operations
from ingest.store.connections.pool import Pool

_LIMIT = 100


_AuditPage = page_of("operations", ShownOperation)
_PAGE = Documentation(
    text="Who has changed what, how many, and with which result, the newest first. A key that is limited to sources sees their "
    "changes only. The state `unfinished` means that the change is running, or that its result is unknown.",
    parameters=[
        Parameter("source", "query", "Only of these sources.", {"type": "array", "items": {"type": "string"}}),
        Parameter("actor", "query", "Only by this actor, which is the name of an API key, or `cli:` and a Unix user."),
        Parameter("action", "query", "Only this action, or with a dot at its end all that begin so: `dead_letters.`."),
        Parameter("since", "query", "Only begun at this time or later.", TIME),
        Parameter("until", "query", "Only begun before this time.", TIME),
        *paging(MOST_LISTED),
    ],
    schema=_AuditPage,
)


@dataclass(frozen=True, slots=True)
class AuditRoutes:
    """The route.

    Attributes:
        pool: Reads the audit log.
    """

    pool: Pool

    def routes(self) -> Sequence[Route]:
        """The route."""
        return [Route("GET", "/v1/audit", "audit.list", self.page, _PAGE)]

    async def page(self, request: web.Request, caller: Caller) -> web.Response:
        """The newest changes of the sources that the caller may use."""
        given = Parameters(request, ("actor", "action", "since", "until", "limit", "cursor"), ("source",))
        limit, before = given.limit(_LIMIT, MOST_LISTED), given.cursor(int)
        selection = AuditFilter(
            permitted_sources(given.texts("source"), caller),
            given.text("actor"),
            given.text("action"),
            given.time("since"),
            given.time("until"),
        )
        found = await audited_operations(self.pool, selection, limit, before)
        next_cursor = cursor_of(found[-1].number) if len(found) == limit else None
        return json_response(_AuditPage([shown(each, caller.sees) for each in found], next_cursor))


def permitted_sources(wanted: Collection[str], caller: Caller) -> Collection[str] | None:
    """Return the sources to list. None for all, with the changes of the whole deployment.

    Raises:
        Problem: 403 for a source that the caller may not use.
    """
    if not wanted:
        return caller.sources
    for source in wanted:
        if not caller.may_use(source):
            raise Problem(403, "missing_source", "the key is limited to other sources", source=source)
    return wanted
