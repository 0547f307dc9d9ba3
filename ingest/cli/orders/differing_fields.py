"""Prints the fields that a change of stored orders would affect."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ingest.cli.terminal.text import counted, printable

if TYPE_CHECKING:
    from ingest.domain.orders.field_differences import FieldSummary

_LONGEST = 60


def print_fields(fields: "FieldSummary", write: Callable[[str], None]) -> None:
    """Print the number of orders and an example for each field, the most frequent first."""
    for name, orders in fields.by_frequency():
        write(f"  {printable(name, 100)}: {counted(orders, 'order')}")
        for example in fields.examples[name]:
            write(f"    {printable(example.order_id, 128)}: {_shown(example.before)} -> {_shown(example.after)}")


def _shown(value: str | None) -> str:
    return "nothing" if value is None else printable(value, _LONGEST)
