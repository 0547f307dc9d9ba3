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
        expression: SQL that computes the column from the arguments. The default is the argument of the same name, in the stored type.
        update: when an existing row takes the new value.
        is_content: whether a different value here makes two versions of an order differ.
        stored_type: SQL type in the table. The default is the argument's type.
    """

    name: str
    argument_type: str = ""
    expression: str = ""
    update: Update = Update.ALWAYS
    is_content: bool = False
    stored_type: str = ""

    @property
    def type(self) -> str:
        """SQL type in the table."""
        return self.stored_type or self.argument_type


COLUMNS = (
    Column("order_id", "text", update=Update.NEVER),
    Column("status", "text", is_content=True),
    Column("currency", "text", is_content=True),
    Column("customer_id", "text", is_content=True),
    Column("country", "text", is_content=True),
    Column("placed_at", "timestamptz", is_content=True),
    Column("updated_at", "timestamptz", is_content=True),
    Column("line_count", "", "jsonb_array_length(lines)", stored_type="integer"),
    Column("total", "text", update=Update.IF_CONTENT_DIFFERS, stored_type="numeric"),
    Column("lines", "text", update=Update.IF_CONTENT_DIFFERS, is_content=True, stored_type="jsonb"),
    # The same rule as in `OrderRow.age`.
    Column(
        "version",
        "",
        f"CASE WHEN updated_at <= fetched_at + interval '{MOST_AHEAD.days} days' THEN updated_at ELSE fetched_at END",
        stored_type="timestamptz",
    ),
    Column("fetched_at", "timestamptz"),
    Column("attempts", "integer", update=Update.IF_CONTENT_DIFFERS),
    Column("enqueued_at", "float8", "to_timestamp(enqueued_at)", Update.IF_CONTENT_DIFFERS, stored_type="timestamptz"),
    Column("ingested_at", "", "statement_timestamp()", Update.IF_CONTENT_DIFFERS, stored_type="timestamptz"),
    Column(
        "attributes",
        "text",
        "coalesce(attributes::jsonb, '{}')",
        Update.IF_CONTENT_DIFFERS,
        is_content=True,
        stored_type="jsonb",
    ),
    Column("document", "text", update=Update.IF_CONTENT_DIFFERS, is_content=True, stored_type="jsonb"),
    # One for the whole statement.
    Column("source", "", "source", Update.NEVER, stored_type="text"),
)

SENT = tuple(column for column in COLUMNS if column.argument_type)
ORDER = tuple(takewhile(lambda column: column.name != "version", COLUMNS))
"""The columns of the order itself."""
_TIMES = {column.name for column in COLUMNS if column.type == "timestamptz"}
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


def made_from(sent: str) -> str:
    """Return a query for the values of all columns, from a query for the source and the values of `SENT`."""
    # The lines are parsed once, because their number is also computed. Other texts of a row that is left out are not parsed.
    values = ", ".join("lines::jsonb AS lines" if column.name == "lines" else column.name for column in SENT)
    columns = ", ".join(
        f"{column.expression or f'{column.name}::{column.type}'} AS {column.name}" for column in COLUMNS
    )
    return f"SELECT {columns} FROM (SELECT source, {values} FROM ({sent}) AS sent OFFSET 0) AS parsed"  # noqa: S608  our own columns


# The arrays are unnested together in the target list, because in FROM each would first be copied to its own table.
MADE = made_from(
    "SELECT $1::text AS source, "
    + ", ".join(
        f"unnest(${number}::{column.argument_type}[]) AS {column.name}" for number, column in enumerate(SENT, 2)
    )
)
"""A query for the rows of a batch. The first argument is their source, followed by one array for each column of `SENT`."""


def arguments(rows: Sequence[OrderRow]) -> list[tuple[Any, ...]]:
    """Return the values of the rows for each column of `SENT`. A column without a value is empty, because `unnest` adds NULLs."""
    columns = list(zip(*map(astuple, rows), strict=True))[: len(SENT)] if rows else [()] * len(SENT)
    return [() if column.count(None) == len(rows) else column for column in columns]
