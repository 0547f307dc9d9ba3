"""Requests that change the selected dead letters or retries. A selection never includes everything by omission."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
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
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.operations.audit import Operation, audited
from ingest.store.audit import AuditLog

_MOST_IDS = 1000
_LONGEST = 128
_LONGEST_TEXT = 500
MOST_ATTRIBUTES = 10


class SelectionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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

    ids: list[str] = []
    reasons: list[str] = []
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    text: str = ""
    shape: str = ""
    attributes: dict[str, str] = {}

    def dead_letters(self) -> Selection:
        """The selection of dead letters.

        Raises:
            Problem: 422 for an invalid selection.
        """
        self._check()
        with _as_problems():
            since, until = _utc(self.since), _utc(self.until)
            return Selection(
                frozenset(self.ids), frozenset(self.reasons), since, until, self.everything, self._filter()
            )

    def retries(self) -> RetrySelection:
        """The selection of retries. Errors as for `dead_letters`."""
        self._check()
        with _as_problems():
            since, until = _utc(self.since), _utc(self.until)
            chosen = frozenset(self.ids), frozenset(self.reasons), self.everything
            return RetrySelection(*chosen, since, until, self._filter())

    def _filter(self) -> EntryFilter:
        return EntryFilter(self.text, self.shape, self.attributes)

    def _check(self) -> None:
        if max(len(self.ids), len(self.reasons)) > _MOST_IDS:
            raise _invalid(f"ids and reasons: at most {_MOST_IDS:,} of each")
        if any(len(text) > _LONGEST or "\0" in text for text in (*self.ids, *self.reasons)):
            raise _invalid(f"ids and reasons: at most {_LONGEST} characters each, and no NUL")
        criteria = (self.text, self.shape, *self.attributes, *self.attributes.values())
        if len(self.attributes) > MOST_ATTRIBUTES or any(
            len(text) > _LONGEST_TEXT or "\0" in text for text in criteria
        ):
            raise _invalid(
                f"text, shape and attributes: at most {_LONGEST_TEXT} characters each, {MOST_ATTRIBUTES} attributes, and no NUL"
            )


class RetriesBody(SelectionBody, frozen=True, forbid_unknown_fields=True):
    """The retries that match all given criteria.

    Attributes:
        dry_run: Only count them.
    """

    dry_run: bool = False

    def selection(self) -> RetrySelection:
        """The selection."""
        return self.retries()


class DeadLettersBody(SelectionBody, frozen=True, forbid_unknown_fields=True):
    """The dead letters that match all given criteria.

    Attributes:
        dry_run: Only count them.
    """

    dry_run: bool = False

    def selection(self) -> Selection:
        """The selection."""
        return self.dead_letters()


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
            async with audited(self.audit_log, caller.name, action, _recorded(body)) as operation:
                result = await apply(selection, operation)
        return json_response({"dry_run": False, **result})


@contextmanager
def _as_problems() -> Iterator[None]:
    try:
        yield
    except InvalidSelection as error:
        raise _invalid(str(error)) from error
    except OverflowError as error:
        raise _invalid("a time is out of range") from error


def entry_filter(given: Parameters) -> EntryFilter:
    """The parameters `text`, `shape` and `attribute` of a query.

    Raises:
        Problem: 422 for an attribute that is not `name=value`.
    """
    attributes = dict[str, str]()
    for text in given.texts("attribute"):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise Problem(422, "invalid_parameter", "attribute: name=value", parameter="attribute")
        attributes[name] = value
    return EntryFilter(given.text("text") or "", given.text("shape") or "", attributes)


def _recorded(body: RetriesBody | DeadLettersBody) -> Mapping[str, Any]:
    """The selection for the audit log, without criteria that were not given and did not exist in earlier releases."""
    selected = {name: getattr(body, name) for name in body.__struct_fields__ if name != "dry_run"}
    selected = {name: value for name, value in selected.items() if value or name not in ("text", "shape", "attributes")}
    return {name: _utc(value).isoformat() if isinstance(value, datetime) else value for name, value in selected.items()}


def _utc(moment: datetime | None) -> Any:
    """A time in UTC, which is also the zone of a time without an offset."""
    if moment is None or moment.tzinfo is not None:
        return moment and moment.astimezone(UTC)
    return moment.replace(tzinfo=UTC)


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid_body", detail)
