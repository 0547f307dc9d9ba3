"""The selection of dead letters or retries in a body or a query. A body never selects everything by omission."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from ingest.api.documentation.documentation import Parameter
from ingest.api.documentation.operations_documentation import TIME, several
from ingest.api.http.parameters import Parameters, decoded_cursor, invalid_cursor
from ingest.api.http.problems import Problem
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import InvalidSelection, Selection
from ingest.domain.operating.selection_json import SelectionRecord
from ingest.operations.failed_orders.entries import FailedEntries

_MOST_IDS = 1000
_LONGEST = 128
_LONGEST_TEXT = 500
_MOST_ATTRIBUTES = 10
_FILTER = [
    Parameter("text", "query", "Only with this text in the order ID or the error, in upper or lower case."),
    Parameter("shape", "query", "Only with this error shape, or with the shape of this error."),
    several("attribute", "Only with this field of the entry, as `name=value`, such as `origin=api`."),
]
SELECTING = {
    EntryKind.RETRIES: [
        several("order_id", "Only these orders."),
        several("reason", f"Only for these reasons: {', '.join(RetryReason)}."),
        Parameter("since", "query", "Only of orders that were first enqueued at this time or later.", TIME),
        Parameter("until", "query", "Only of orders that were first enqueued before this time.", TIME),
        *_FILTER,
    ],
    EntryKind.DEAD_LETTERS: [
        several("id", "Only dead letters with this ID, or of this order."),
        several("reason", "Only for these reasons."),
        Parameter("since", "query", "Only dead-lettered at this time or later.", TIME),
        Parameter("until", "query", "Only dead-lettered before this time.", TIME),
        *_FILTER,
    ],
}
"""The parameters of a selection in a query."""
REPEATED = {kind: [each.name for each in given if each.is_repeated] for kind, given in SELECTING.items()}
"""Those that may be repeated. The first are IDs."""
CRITERIA = [each.name for each in SELECTING[EntryKind.RETRIES] if not each.is_repeated]
"""The others, which are the same for both kinds."""


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
            since, until = in_utc(self.since), in_utc(self.until)
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


def position_in(entries: FailedEntries, cursor: str | None) -> Any:
    """The position in a cursor, or None for the first page.

    Raises:
        Problem: 422 if no page has ended there.
    """
    try:
        return entries.position(decoded_cursor(cursor, entries.cursor)) if cursor is not None else None
    except ValueError as error:
        raise invalid_cursor() from error


def selection_in(given: Parameters, kind: EntryKind) -> Selection:
    """The selection in a query, which are all entries without criteria.

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
    ids, reasons, since, until = (
        given.texts(REPEATED[kind][0]),
        given.texts("reason"),
        given.time("since"),
        given.time("until"),
    )
    try:
        return Selection(ids, reasons, since, until, not (ids or reasons or since or until or chosen), chosen)
    except InvalidSelection as error:
        raise Problem(422, "invalid_parameter", str(error), parameter="until") from error


def in_utc(moment: datetime | None) -> Any:
    """A time in UTC, which is also the zone of a time without an offset."""
    if moment is None or moment.tzinfo is not None:
        return moment and moment.astimezone(UTC)
    return moment.replace(tzinfo=UTC)


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid_body", detail)
