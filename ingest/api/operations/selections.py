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
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.selection import InvalidSelection, Selection
from ingest.domain.operating.selection_json import SelectionRecord, selection_as_dict
from ingest.operations.audit import Operation, audited
from ingest.store.audit import AuditLog

_MOST_IDS = 1000
_LONGEST = 128
_LONGEST_TEXT = 500
_MOST_ATTRIBUTES = 10
# In the audit log, including the criteria that are not given.
_ALWAYS_RECORDED: Mapping[str, Any] = {"ids": [], "reasons": [], "since": None, "until": None, "everything": False}


class SelectionBody(SelectionRecord, frozen=True, forbid_unknown_fields=True):
    """The dead letters or retries that match all given criteria.

    Attributes:
        ids: Dead letters, or orders.
        reasons: Why they were dead-lettered, or are tried again.
        since: Dead-lettered at this time or later, or retries of orders that were first enqueued then.
        until: Before this time.
        everything: All of them, required without criteria.
        text: Part of the order ID or the error, in upper or lower case.
        shape: Shape of the error, or an error with this shape.
        attributes: Values of fields of the entry.
    """

    def selection(self) -> Selection:
        """The selection.

        Raises:
            Problem: 422 for an invalid selection.
        """
        self._check()
        try:
            since, until = _utc(self.since), _utc(self.until)
            return super(SelectionBody, msgspec.structs.replace(self, since=since, until=until)).selection()
        except InvalidSelection as error:
            raise _invalid(str(error)) from error
        except OverflowError as error:
            raise _invalid("a time is out of range") from error

    def _check(self) -> None:
        if max(len(self.ids), len(self.reasons)) > _MOST_IDS:
            raise _invalid(f"ids and reasons: at most {_MOST_IDS:,} of each")
        if any(len(text) > _LONGEST or "\0" in text for text in (*self.ids, *self.reasons)):
            raise _invalid(f"ids and reasons: at most {_LONGEST} characters each, and no NUL")
        criteria = (self.text, self.shape, *self.attributes, *self.attributes.values())
        if len(self.attributes) > _MOST_ATTRIBUTES or any(
            len(text) > _LONGEST_TEXT or "\0" in text for text in criteria
        ):
            raise _invalid(
                f"text, shape and attributes: at most {_LONGEST_TEXT} characters each, {_MOST_ATTRIBUTES} attributes, and no NUL"
            )


class RetriesBody(SelectionBody, frozen=True, forbid_unknown_fields=True):
    """The retries that match all given criteria.

    Attributes:
        dry_run: Only count them.
    """

    dry_run: bool = False


class DeadLettersBody(SelectionBody, frozen=True, forbid_unknown_fields=True):
    """The dead letters that match all given criteria.

    Attributes:
        dry_run: Only count them.
    """

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one kind of entries.

    Attributes:
        audit_log: Records them.
        limits: The limits of bodies.
        body: The body of requests.
        survey: Counts the entries of a selection by reason.
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
        selection = body.selection()
        with as_problems():
            if body.dry_run:
                survey = await self.survey(selection)
                return json_response({"dry_run": True, "count": survey.count, "reasons": dict(survey.reasons)})
            recorded = {**_ALWAYS_RECORDED, **selection_as_dict(selection)}
            async with audited(self.audit_log, caller.name, action, recorded) as operation:
                result = await apply(selection, operation)
        return json_response({"dry_run": False, **result})


def selection_in(given: Parameters, id_name: str) -> Selection:
    """The selection in a query: `since`, `until`, `text`, `shape`, `reason`, `attribute`, and IDs. All entries without criteria.

    Raises:
        Problem: 422 for an attribute that is not `name=value`, or a contradiction.
    """
    attributes = dict[str, str]()
    for text in given.texts("attribute"):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise Problem(422, "invalid_parameter", "attribute: name=value", parameter="attribute")
        attributes[name] = value
    chosen = EntryFilter(given.text("text") or "", given.text("shape") or "", attributes)
    ids, reasons, since, until = given.texts(id_name), given.texts("reason"), given.time("since"), given.time("until")
    try:
        return Selection(ids, reasons, since, until, not (ids or reasons or since or until or chosen), chosen)
    except InvalidSelection as error:
        raise Problem(422, "invalid_parameter", str(error), parameter="until") from error


def _utc(moment: datetime | None) -> Any:
    """A time in UTC, which is also the zone of a time without an offset."""
    if moment is None or moment.tzinfo is not None:
        return moment and moment.astimezone(UTC)
    return moment.replace(tzinfo=UTC)


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid_body", detail)
