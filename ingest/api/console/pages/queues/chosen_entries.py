"""The selection of dead letters or retries in the query of a page, and in the forms and links that repeat it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ingest.api.console.forms import Form
from ingest.api.console.inputs import attributes_in, invalid, time_in, time_value
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.selection import InvalidSelection, Selection


@dataclass(frozen=True, slots=True)
class ChosenEntries:
    """The criteria of a page. Without criteria, all entries of the source are chosen.

    Attributes:
        source: The chosen source, or None for all.
        ids: The IDs of chosen entries, or of orders.
        attributes: The attributes, as `name=value`.
    """

    source: str | None
    ids: Sequence[str]
    reason: str
    text: str
    shape: str
    attributes: Sequence[tuple[str, str]]
    since: datetime | None
    until: datetime | None

    @classmethod
    def of(cls, form: Form) -> "ChosenEntries":
        """Read the criteria.

        Raises:
            Problem: 422 for an invalid value.
        """
        return cls(
            form.text("source") or None,
            [text for text in form.texts("id") if text],
            form.text("reason"),
            form.text("text"),
            form.text("shape"),
            attributes_in(form, "origin=api"),
            time_in(form, "since", "From"),
            time_in(form, "until", "Before"),
        )

    @property
    def is_everything(self) -> bool:
        """Whether all entries are chosen."""
        return not (self.ids or self.reason or self.text or self.shape or self.attributes or self.since or self.until)

    def selection(self) -> Selection:
        """Return the selection.

        Raises:
            Problem: 422 for a contradiction.
        """
        reasons = frozenset({self.reason} if self.reason else ())
        chosen = EntryFilter(self.text, self.shape, dict(self.attributes))
        try:
            return Selection(frozenset(self.ids), reasons, self.since, self.until, self.is_everything, chosen)
        except InvalidSelection as error:
            raise invalid("Period", str(error)) from error

    def values(self) -> dict[str, Any]:
        """Return the criteria as the values of links and hidden fields."""
        return {
            "source": self.source,
            "id": [*self.ids],
            "reason": self.reason or None,
            "text": self.text or None,
            "shape": self.shape or None,
            "attribute": [f"{name}={value}" for name, value in self.attributes],
            "since": time_value(self.since),
            "until": time_value(self.until),
        }

    def described(self) -> list[tuple[str, Any]]:
        """Return the labels and the values of the criteria."""
        given: list[tuple[str, Any]] = [
            ("Selected", f"{len(self.ids)} entries" if len(self.ids) > 1 else "".join(self.ids)),
            ("Reason", self.reason),
            ("Error", self.shape),
            ("Text", self.text),
            *(("Attribute", f"{name} = {value}") for name, value in self.attributes),
            ("From", self.since),
            ("Before", self.until),
        ]
        return [(label, value) for label, value in given if value]
