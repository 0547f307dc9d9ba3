"""The forms of dead letters, retries and their groups in responses and files."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_fields import FORMER_ORIGIN, ORIGIN
from ingest.domain.deliveries.selection import FailedEntry
from ingest.operations.json_types import Count, Time, page_of, response_of
from ingest.operations.visibility import EVERYTHING, Visibility


class ListedDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter, without the fields that lists do not read."""

    id: str
    source: str
    order_id: str | None
    reason: str
    error: str
    attempts: int | None
    dead_at: Time
    first_enqueued_at: Time | None
    worker: str | None
    seen: Count
    last_seen_at: Time | None
    replays: Count
    replayed_at: Time | None


class ShownDeadLetter(ListedDeadLetter, frozen=True):
    """A dead letter with all other fields of the entry."""

    fields: dict[str, str]


class ListedRetry(msgspec.Struct, frozen=True):
    """An order that waits for its next attempt."""

    id: str
    source: str
    order_id: str | None
    next_try_at: Time
    attempt: int
    reason: str
    error: str
    announced_at: Time | None


class MissingPartition(msgspec.Struct, frozen=True):
    """A partition whose server cannot be used, so that its entries are missing."""

    queue: str
    server: str
    kind: str
    error: str


_Missing = Annotated[
    list[MissingPartition],
    Meta(description="Partitions whose server cannot be used, so that their entries are missing."),
]


DeadLetterList = page_of("dead_letters", ListedDeadLetter, missing_partitions=_Missing)
RetryList = page_of("retries", ListedRetry, missing_partitions=_Missing)


class ShownGroup(msgspec.Struct, frozen=True):
    """Entries of one source with the same reason and error shape."""

    source: str
    reason: str
    shape: Annotated[str, Meta(description="The error with placeholders for numbers, IDs, times and quoted values.")]
    count: Count
    newest: Time | None
    oldest: Time | None
    error: Annotated[str, Meta(description="The error of one of them.")]
    order_ids: Annotated[list[str], Meta(description="A few of the orders.")]


class GroupList(msgspec.Struct, frozen=True):
    """The groups, the largest first."""

    groups: list[ShownGroup]
    examined: Annotated[Count, Meta(description="Entries that were read so far.")]
    total: Annotated[Count, Meta(description="Entries that there are.")]
    age: Annotated[float, Meta(description="Seconds since the groups were complete, if there is a problem.")]
    problem: Annotated[str, Meta(description="Why newer groups cannot be read, or empty.")]
    missing_partitions: _Missing


class EntryChange(msgspec.Struct, frozen=True):
    """The number of entries that were changed, or would be in a dry run."""

    dry_run: bool
    count: Count
    missing_partitions: _Missing
    gone: Annotated[Count | UnsetType, Meta(description="Dead letters that had been changed otherwise.")] = UNSET
    reasons: Annotated[dict[str, Count] | UnsetType, Meta(description="In a dry run, their reasons.")] = UNSET


def shown(entry: DeadLetterEntry, source: str, sees: Visibility = EVERYTHING) -> ShownDeadLetter:
    """Return the form of a dead letter of a source."""
    fields = sees.fields(texts(_with_current_names(entry.fields)))
    return response_of(ShownDeadLetter, entry, id=entry.entry_id, source=source, fields=fields)


def listed(entry: FailedEntry, source: str) -> ListedDeadLetter | ListedRetry:
    """Return the form of an entry in a list."""
    if isinstance(entry, DeadLetterEntry):
        return response_of(ListedDeadLetter, entry, id=entry.entry_id, source=source)
    return response_of(ListedRetry, entry, id=entry.entry_id, source=source)


def _with_current_names(fields: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Name the fields of an entry of an earlier release as this release does."""
    if FORMER_ORIGIN not in fields or ORIGIN in fields:
        return fields
    return {ORIGIN if name == FORMER_ORIGIN else name: value for name, value in fields.items()}


def texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decode an entry's fields. Bytes that are not UTF-8 become backslash escapes."""
    return {
        name.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
        for name, value in fields.items()
    }
