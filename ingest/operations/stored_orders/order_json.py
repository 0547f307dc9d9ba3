"""Converts the state of an order for JSON."""

from typing import Any

from ingest.domain.orders.order_state import OrderState, QueueEntry
from ingest.operations.visibility import EVERYTHING, Visibility


def as_object(state: OrderState, sees: Visibility = EVERYTHING) -> dict[str, Any]:
    """Convert the state of an order to an object that msgspec writes as JSON. Times are in UTC."""
    row = sees.row(state.row) or {"order": None, "row": None}
    ingestion: dict[str, Any] = {
        "state": state.state.value,
        "searched": state.searched,
        "entries": [_entry_as_object(entry) for entry in state.entries],
    }
    if state.problem:
        ingestion["problem"] = state.problem
    return {
        "source": state.source,
        "order_id": state.order_id,
        "order": row["order"],
        "row": row["row"],
        "erased_at": state.erased_at,
        "ingestion": ingestion,
    }


def _entry_as_object(entry: QueueEntry) -> dict[str, Any]:
    # The order ID is in the enclosing object, and `name` is internal to Redis. `fields` are of a search.
    about: dict[str, Any] = {
        name: getattr(entry, name) for name in entry.__slots__ if name not in {"order_id", "name", "fields"}
    }
    return {"state": entry.state.value} | about
