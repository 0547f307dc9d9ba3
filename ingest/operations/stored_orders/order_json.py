"""The forms of orders, of their states and of their histories in responses."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ingest.domain.orders.order_history import HistoryEntry
from ingest.domain.orders.order_state import (
    DeadEntry,
    InFlightEntry,
    IngestionState,
    OrderState,
    QueuedEntry,
    RetryEntry,
)
from ingest.operations.json_types import Count, Moment, page_of, response_of
from ingest.operations.visibility import EVERYTHING, Visibility


class RetryingEntry(msgspec.Struct, frozen=True, tag_field="state", tag="retrying"):
    """An entry that waits for its next attempt."""

    entry_id: str
    announced_at: Moment | None
    next_try_at: Moment
    attempt: int
    reason: str
    error: str


class Ingestion(msgspec.Struct, frozen=True):
    """The state of an order in the queue."""

    state: IngestionState
    searched: Annotated[bool, Meta(description="Whether the whole queue was searched.")]
    entries: list[QueuedEntry | InFlightEntry | RetryingEntry | DeadEntry]
    problem: Annotated[str | UnsetType, Meta(description="Why it was not searched.")] = UNSET


class ShownOrder(msgspec.Struct, frozen=True):
    """An order, and its state in the queue."""

    source: str
    order_id: str
    order: Annotated[dict[str, Any] | None, Meta(description="The values from its document, if it is stored.")]
    row: Annotated[dict[str, Any] | None, Meta(description="The times and the version of its row, if it is stored.")]
    erased_at: Moment | None
    ingestion: Ingestion


class ListedOrder(msgspec.Struct, frozen=True):
    """A stored order, without lines and attributes."""

    order: Annotated[dict[str, Any], Meta(description="The values from its document.")]
    row: Annotated[dict[str, Any], Meta(description="The times and the version of its row.")]


OrderList = page_of("orders", ListedOrder)
HistoryList = page_of("history", HistoryEntry)


class RemovedEntries(msgspec.Struct, frozen=True):
    """The rows and entries that an erasure has removed."""

    rows: Count
    retries: Count
    dead_letters: Count


class ErasedOrder(msgspec.Struct, frozen=True):
    """An erased order."""

    order_id: str
    removed: RemovedEntries


def shown(state: OrderState, sees: Visibility = EVERYTHING) -> ShownOrder:
    """Return the form of the state of an order. Times are in UTC."""
    row = sees.row(state.row) or {"order": None, "row": None}
    entries = [response_of(RetryingEntry, each) if isinstance(each, RetryEntry) else each for each in state.entries]
    ingestion = Ingestion(state.state, state.searched, entries, state.problem or UNSET)
    return ShownOrder(state.source, state.order_id, row["order"], row["row"], state.erased_at, ingestion)
