"""Declares the columns of `orders`, from which statements and their arguments are derived.

To add a column, add a migration, an entry here, a field of `OrderRow` if the value is sent, and a field of `StoredOrder` if it is read
back. Entries here and fields of `OrderRow` are in the order of the table.
"""

from collections.abc import Sequence
from enum import Enum
from itertools import takewhile
from typing import Any

import msgspec
from msgspec.structs import astuple

from ingest.domain.orders.order_row import MOST_AHEAD, OrderRow


class Update(Enum):
    """When an existing row takes a column's new value from a newer version of its order."""

    NEVER = "never"
    ALWAYS = "always"
    IF_CONTENT_DIFFERS = "if content differs"


class Column(msgspec.Struct, frozen=True):
    """One column of `orders`.

    Attributes:
        name: name of the column, its argument and its field of `OrderRow`.
        argument_type: SQL type of the argument. Empty if PostgreSQL computes the column.
        expression: SQL that computes the column from the arguments. The default is the argument of the same name.
        update: when an existing row takes the new value.
        is_content: whether a different value here makes two versions of an order differ.
        is_optional: whether it is omitted from a batch in which all rows contain the usual value.
        usual: the usual value.
        cast: SQL type that the arguments are converted to before expressions use them.
        stored_type: SQL type in the table. The default is the argument's type.
    """

    name: str
    argument_type: str = ""
    expression: str = ""
    update: Update = Update.ALWAYS
    is_content: bool = False
    is_optional: bool = False
    usual: int | None = None
    cast: str = ""
    stored_type: str = ""


COLUMNS = (
    Column("order_id", "text", update=Update.NEVER),
    Column("status", "text", is_content=True),
    Column("currency", "text", is_content=True),
    Column("customer_id", "text", is_content=True),
    Column("country", "text", is_content=True),
    Column("placed_at", "timestamptz", is_content=True),
    Column("updated_at", "timestamptz", is_content=True, is_optional=True),
    Column("line_count", "", "jsonb_array_length(lines)", stored_type="integer"),
    Column("total", "text", "total::numeric", Update.IF_CONTENT_DIFFERS, stored_type="numeric"),
    # Cast once, because its length is also computed.
    Column("lines", "text", update=Update.IF_CONTENT_DIFFERS, is_content=True, cast="jsonb", stored_type="jsonb"),
    # The same rule as in `OrderRow.age`.
    Column(
        "version",
        "",
        f"CASE WHEN updated_at <= fetched_at + interval '{MOST_AHEAD.days} days' THEN updated_at ELSE fetched_at END",
        stored_type="timestamptz",
    ),
    Column("fetched_at", "timestamptz"),
    Column("attempts", "integer", "coalesce(attempts, 1)", Update.IF_CONTENT_DIFFERS, is_optional=True, usual=1),
    Column("enqueued_at", "float8", "to_timestamp(enqueued_at)", Update.IF_CONTENT_DIFFERS, stored_type="timestamptz"),
    Column("ingested_at", "", "statement_timestamp()", Update.IF_CONTENT_DIFFERS, stored_type="timestamptz"),
    Column(
        "attributes",
        "text",
        "coalesce(attributes::jsonb, '{}')",
        Update.IF_CONTENT_DIFFERS,
        is_content=True,
        is_optional=True,
        stored_type="jsonb",
    ),
    Column(
        "document",
        "text",
        "document::jsonb",
        Update.IF_CONTENT_DIFFERS,
        is_content=True,
        is_optional=True,
        stored_type="jsonb",
    ),
)

SENT = tuple(column for column in COLUMNS if column.argument_type)
ORDER = tuple(takewhile(lambda column: column.name != "version", COLUMNS))
"""The columns of the order itself."""
EXPRESSIONS = ", ".join(column.expression or column.name for column in COLUMNS)
"""SQL for the values of all columns, if the arguments are named like the columns."""


_TIMES = {column.name for column in COLUMNS if (column.stored_type or column.argument_type) == "timestamptz"}
_FIRST = "timestamptz '0001-01-01 00:00:00+00'"
_LAST = "timestamptz '9999-12-31 23:59:59.999999+00'"


def readable(name: str, prefix: str = "") -> str:
    """Return SQL that reads a column. A time outside of Python's range becomes the nearest valid one."""
    column = prefix + name
    if name not in _TIMES:
        return column
    return f"CASE WHEN {column} IS NOT NULL THEN least(greatest({column}, {_FIRST}), {_LAST}) END AS {name}"


def named(template: str, columns: Sequence[Column] = COLUMNS) -> str:
    """Return an SQL list with the template for each column, and the column's name in place of `{}`."""
    return ", ".join(template.replace("{}", column.name) for column in columns)


def updated(update: Update) -> list[Column]:
    """Return the columns that are updated in this case."""
    return [column for column in COLUMNS if column.update is update]


def incoming(sent: Sequence[Column] = SENT) -> str:
    """Return a query for the rows of a batch with one array for each sent column. Other columns are NULL.

    The arrays are unnested together in the target list, because in FROM each would first be copied to its own table.
    """
    elements = ", ".join(
        f"unnest(${number}::{column.argument_type}[]) AS {column.name}" for number, column in enumerate(sent, 1)
    )
    values = ", ".join(_value(column, is_sent=column in sent) for column in SENT)
    return f"SELECT {values} FROM (SELECT {elements}) AS t OFFSET 0"  # noqa: S608  our own columns


def _value(column: Column, *, is_sent: bool) -> str:
    if not is_sent:
        return f"NULL::{column.cast or column.argument_type} AS {column.name}"
    return f"{column.name}::{column.cast} AS {column.name}" if column.cast else column.name


def arguments(rows: Sequence[OrderRow]) -> list[tuple[Any, ...]]:
    """Return the values of the rows for each column of `SENT`."""
    return list(zip(*map(astuple, rows), strict=True)) if rows else [()] * len(SENT)


def batch(rows: Sequence[OrderRow]) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
    """Return the columns to send for these rows, and the values of each."""
    columns, values = SENT, arguments(rows)
    empty = [
        index
        for index, column in enumerate(SENT)
        if column.is_optional and values[index].count(column.usual) == len(rows)
    ]
    if empty:
        columns = tuple(column for index, column in enumerate(SENT) if index not in empty)
        values = [each for index, each in enumerate(values) if index not in empty]
    return columns, values
