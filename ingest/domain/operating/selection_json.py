"""Converts selections of dead letters and retries to JSON values and back, for jobs and the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from ingest.domain.deliveries.dead_letter import Selection
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.retry_selection import RetrySelection


class _Recorded(msgspec.Struct, frozen=True, omit_defaults=True):
    ids: list[str] = []
    reasons: list[str] = []
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    text: str = ""
    shape: str = ""
    attributes: dict[str, str] = {}


def selection_as_dict(selection: Selection | RetrySelection) -> dict[str, Any]:
    """Return a selection as JSON values, without criteria that are not given."""
    chosen = selection.filter
    recorded = _Recorded(
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


def dead_letter_selection(recorded: Mapping[str, Any]) -> Selection:
    """Return the selection of dead letters that `selection_as_dict` has recorded."""
    values = msgspec.convert(recorded, _Recorded)
    return Selection(
        frozenset(values.ids), frozenset(values.reasons), values.since, values.until, values.everything, _filter(values)
    )


def retry_selection(recorded: Mapping[str, Any]) -> RetrySelection:
    """Return the selection of retries that `selection_as_dict` has recorded."""
    values = msgspec.convert(recorded, _Recorded)
    return RetrySelection(
        frozenset(values.ids), frozenset(values.reasons), values.everything, values.since, values.until, _filter(values)
    )


def _filter(values: _Recorded) -> EntryFilter:
    return EntryFilter(values.text, values.shape, values.attributes)
