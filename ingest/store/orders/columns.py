"""The columns of `orders`, declared once: the statements that write the table and their arguments are derived from here.

A new column takes a migration, an entry here, a field of `OrderRow` if it is sent, and, where rows are read back, one of
`StoredOrder`. The order is that of the table, and `OrderRow` has it, too.
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
        name: in the table, of the argument, and of its value in an `OrderRow`.
        argument_type: the SQL type in which its values are sent; empty if PostgreSQL computes the column.
        expression: SQL that makes the column of the arguments; by default, the argument of its name.
        update: when an existing row takes the new value.
        is_content: whether two versions of an order with another value here differ.
        is_optional: whether it is not sent with a batch in which all rows have the usual value.
        usual: that value.
        cast: the SQL type that the arguments are converted to before expressions use them.
        stored_type: the SQL type in the table; by default, that of its argument.
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
    # Cast once, for its length.
    Column("lines", "text", update=Update.IF_CONTENT_DIFFERS, is_content=True, cast="jsonb", stored_type="jsonb"),
    # As `OrderRow.age` has it.
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
"""The columns that hold the order itself."""
EXPRESSIONS = ", ".join(column.expression or column.name for column in COLUMNS)
"""What the columns are made of, where the arguments have the columns' names."""


_TIMES = {column.name for column in COLUMNS if (column.stored_type or column.argument_type) == "timestamptz"}
_FIRST = "timestamptz '0001-01-01 00:00:00+00'"
_LAST = "timestamptz '9999-12-31 23:59:59.999999+00'"


def readable(name: str, prefix: str = "") -> str:
    """SQL that reads a column: for a time that Python has no value for, as another program may write it, the nearest one."""
    column = prefix + name
    if name not in _TIMES:
        return column
    return f"CASE WHEN {column} IS NOT NULL THEN least(greatest({column}, {_FIRST}), {_LAST}) END AS {name}"


def named(template: str, columns: Sequence[Column] = COLUMNS) -> str:
    """A list for an SQL statement: the template once for each column, with its name for every `{}`."""
    return ", ".join(template.replace("{}", column.name) for column in columns)


def updated(update: Update) -> list[Column]:
    """The columns that are updated in this case."""
    return [column for column in COLUMNS if column.update is update]


def incoming(sent: Sequence[Column] = SENT) -> str:
    """A query for the rows of a batch, one array for each column that is sent; the others are NULL.

    The arrays are taken apart in step in the target list: in FROM, each would be copied to a table of its own first.
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
    """The rows' values, for each column of `SENT`."""
    return list(zip(*map(astuple, rows), strict=True)) if rows else [()] * len(SENT)


def batch(rows: Sequence[OrderRow]) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
    """The columns that are sent with these rows, and the rows' values in each."""
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
