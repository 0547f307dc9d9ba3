"""The JSON form of a selection of dead letters or retries, for requests, jobs and the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.selection import Selection


class SelectionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A selection as JSON values. See `Selection` and `EntryFilter`."""

    ids: list[str] = []
    reasons: list[str] = []
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    text: str = ""
    shape: str = ""
    attributes: dict[str, str] = {}

    def selection(self) -> Selection:
        """Return the selection."""
        chosen = EntryFilter(self.text, self.shape, self.attributes)
        return Selection(frozenset(self.ids), frozenset(self.reasons), self.since, self.until, self.everything, chosen)


def selection_as_dict(selection: Selection) -> dict[str, Any]:
    """Return a selection as JSON values, without criteria that are not given."""
    chosen = selection.filter
    recorded = SelectionRecord(
        sorted(selection.ids),
        sorted(selection.reasons),
        selection.since,
        selection.until,
        selection.everything,
        chosen.text,
        chosen.shape,
        dict(chosen.attributes),
    )
    values: dict[str, Any] = msgspec.to_builtins(recorded)
    return values


def recorded_selection(recorded: Mapping[str, Any]) -> Selection:
    """Return the selection that `selection_as_dict` has recorded."""
    return msgspec.convert(recorded, SelectionRecord).selection()
