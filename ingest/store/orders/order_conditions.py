"""Builds the conditions of a query for stored orders from a filter."""

from datetime import datetime
from typing import Any

import msgspec

from ingest.domain.orders.order_filter import OrderFilter, OrderPosition

_CONDITIONS = {name: f"o.{name} = ${{}}" for name in ("status", "country", "currency", "customer_id")} | {
    "placed_from": "o.placed_at >= ${}",
    "placed_to": "o.placed_at < ${}",
    "updated_from": "o.updated_at >= ${}",
    "stored_from": "o.ingested_at >= ${}",
    "stored_to": "o.ingested_at < ${}",
}
# After all IDs with a prefix. An ID contains printable characters only, and the column is in the order of code points.
_LAST = "\U0010ffff"
_BY_ID = "o.order_id"
_BY_TIME = "o.ingested_at, o.order_id"


def conditions_of(selection: OrderFilter, source: str, after: OrderPosition) -> tuple[str, str, list[Any]]:
    """Return the condition for rows `o` of a source after a position, their order, and the arguments of both."""
    arguments: list[Any] = [source]
    conditions = ["o.source = $1"]

    def add(condition: str, *values: Any) -> None:
        numbers = range(len(arguments) + 1, len(arguments) + 1 + len(values))
        arguments.extend(values)
        conditions.append(condition.format(*numbers))

    for name, condition in _CONDITIONS.items():
        if (value := getattr(selection, name)) is not None:
            add(condition, value)
    if selection.ids:
        add("o.order_id = ANY (${}::text[])", list(selection.ids))
    if selection.prefix:
        add("o.order_id >= ${} AND o.order_id < ${}", selection.prefix, selection.prefix + _LAST)
    for name, value in selection.attributes:
        # Containment can use an index. A value that is a number or a boolean in JSON may be stored as one, or as text.
        objects = [msgspec.json.encode({name: each}).decode() for each in _json_values(value)]
        add("(" + " OR ".join(["o.attributes @> ${}::text::jsonb"] * len(objects)) + ")", *objects)
    if selection.is_by_time:
        if after.stored_at is not None:
            add("(o.ingested_at, o.order_id) > (${}, ${})", datetime.fromisoformat(after.stored_at), after.order_id)
        return " AND ".join(conditions), _BY_TIME, arguments
    add("o.order_id > ${}", after.order_id)
    return " AND ".join(conditions), _BY_ID, arguments


def _json_values(text: str) -> list[Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return [text]
    return [text, value] if isinstance(value, bool | int | float) else [text]
