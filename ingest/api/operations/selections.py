"""Requests that change the selected dead letters or retries. A selection never includes everything by omission."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.parameters import Parameters
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits, decoded, read_body
from ingest.api.http.routing import Caller
from ingest.domain.deliveries.dead_letter import InvalidSelection, Selection
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.operations.audit import Operation, audited
from ingest.store.audit import AuditLog

_MOST_IDS = 1000
_LONGEST = 128


class RetriesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The retries that match all given criteria.

    Attributes:
        ids: orders.
        reasons: why they are tried again.
        everything: all retries, required without criteria.
        dry_run: only count them.
    """

    ids: list[str] = []
    reasons: list[str] = []
    everything: bool = False
    dry_run: bool = False

    def selection(self) -> RetrySelection:
        """The selection."""
        return RetrySelection(frozenset(self.ids), frozenset(self.reasons), everything=self.everything)


class DeadLettersBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dead letters that match all given criteria.

    Attributes:
        ids: dead letters, or orders.
        reasons: of the dead letters.
        since: dead-lettered at this time or later.
        until: dead-lettered before this time.
        everything: all dead letters, required without criteria.
        dry_run: only count them.
    """

    ids: list[str] = []
    reasons: list[str] = []
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    dry_run: bool = False

    def selection(self) -> Selection:
        """The selection."""
        since, until = _utc(self.since), _utc(self.until)
        return Selection(frozenset(self.ids), frozenset(self.reasons), since, until, everything=self.everything)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one kind of entries.

    Attributes:
        audit_log: records them.
        limits: of bodies.
        body: of requests.
        survey: counts the entries of a selection by reason.
    """

    audit_log: AuditLog
    limits: BodyLimits
    body: type[RetriesBody | DeadLettersBody]
    survey: Callable[[Any], Awaitable[Any]]

    async def respond(
        self,
        request: web.Request,
        caller: Caller,
        action: str,
        apply: Callable[[Any, Operation], Awaitable[Mapping[str, int]]],
    ) -> web.Response:
        """Apply a change to the entries that a request selects, or only count them."""
        Parameters(request, ())
        if request.content_type != JSON:
            raise Problem(415, "content_type", f"the body must be {JSON}")
        body = decoded(await read_body(request, self.limits), self.body)
        selection = _selection(body)
        with as_problems():
            if body.dry_run:
                survey = await self.survey(selection)
                return json_response({"dry_run": True, "count": survey.count, "reasons": dict(survey.reasons)})
            async with audited(self.audit_log, caller.name, action, _recorded(body)) as operation:
                result = await apply(selection, operation)
        return json_response({"dry_run": False, **result})


def _selection(body: RetriesBody | DeadLettersBody) -> RetrySelection | Selection:
    if max(len(body.ids), len(body.reasons)) > _MOST_IDS:
        raise _invalid(f"ids and reasons: at most {_MOST_IDS:,} of each")
    if any(len(text) > _LONGEST or "\0" in text for text in (*body.ids, *body.reasons)):
        raise _invalid(f"ids and reasons: at most {_LONGEST} characters each, and no NUL")
    try:
        return body.selection()
    except InvalidSelection as error:
        raise _invalid(str(error)) from error
    except OverflowError as error:
        raise _invalid("a time is out of range") from error


def _recorded(body: RetriesBody | DeadLettersBody) -> Mapping[str, Any]:
    """The selection for the audit log."""
    selected = {name: getattr(body, name) for name in body.__struct_fields__ if name != "dry_run"}
    return {name: _utc(value).isoformat() if isinstance(value, datetime) else value for name, value in selected.items()}


def _utc(moment: datetime | None) -> Any:
    """A time in UTC, which is also the zone of a time without an offset."""
    if moment is None or moment.tzinfo is not None:
        return moment and moment.astimezone(UTC)
    return moment.replace(tzinfo=UTC)


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid_body", detail)
