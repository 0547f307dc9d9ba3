"""The columns of `orders`, declared once: the statements that write the table and their arguments are derived from here.

A new column takes a migration, an entry here, and, where rows are read back, a field of `StoredOrder`. The order is that of
the table.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from operator import attrgetter
from typing import Any

from ingest.domain.delivery import OrderRow


class Update(Enum):
    """When an existing row takes a column's new value from a newer version of its order."""

    NEVER = "never"
    ALWAYS = "always"
    IF_CONTENT_DIFFERS = "if content differs"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `orders`.

    Attributes:
        name: in the table, and of the argument.
        argument_type: the SQL type in which its values are sent; empty if PostgreSQL computes the column.
        value: what is sent for a row; None if PostgreSQL computes the column.
        expression: SQL that makes the column of the arguments; by default, the argument of its name.
        update: when an existing row takes the new value.
        is_content: whether two versions of an order with another value here differ.
    """

    name: str
    argument_type: str = ""
    value: Callable[[OrderRow], Any] | None = None
    expression: str = ""
    update: Update = Update.ALWAYS
    is_content: bool = False


COLUMNS = (
    Column("order_id", "text", attrgetter("order.id"), update=Update.NEVER),
    Column("status", "text", attrgetter("order.status"), is_content=True),
    Column("currency", "text", attrgetter("order.currency"), is_content=True),
    Column("customer_id", "text", attrgetter("order.customer_id"), is_content=True),
    Column("country", "text", attrgetter("order.country"), is_content=True),
    Column("placed_at", "timestamptz", attrgetter("order.placed_at"), is_content=True),
    Column("updated_at", "timestamptz", attrgetter("order.updated_at"), is_content=True),
    Column("line_count", "integer", lambda row: len(row.order.lines)),
    # As text: asyncpg takes a Decimal apart in Python.
    Column("total", "text", lambda row: str(row.order.total), "total::numeric", Update.IF_CONTENT_DIFFERS),
    Column(
        "lines",
        "text",
        lambda row: row.order.lines_json().decode(),
        "lines::jsonb",
        Update.IF_CONTENT_DIFFERS,
        is_content=True,
    ),
    Column("version", expression="coalesce(updated_at, fetched_at)"),
    Column("fetched_at", "timestamptz", attrgetter("fetched_at")),
    Column("attempts", "integer", attrgetter("attempts"), update=Update.IF_CONTENT_DIFFERS),
    Column(
        "enqueued_at",
        "float8",
        attrgetter("enqueued_at"),
        "to_timestamp(enqueued_at)",
        Update.IF_CONTENT_DIFFERS,
    ),
    Column("ingested_at", expression="statement_timestamp()", update=Update.IF_CONTENT_DIFFERS),
    Column(
        "attributes",
        "text",
        lambda row: row.order.attributes_json().decode(),
        "attributes::jsonb",
        Update.IF_CONTENT_DIFFERS,
        is_content=True,
    ),
    Column(
        "document",
        "text",
        lambda row: None if row.document is None else row.document.decode(),
        "document::jsonb",
        Update.IF_CONTENT_DIFFERS,
        is_content=True,
    ),
)

SENT = tuple(column for column in COLUMNS if column.value is not None)
ORDER = tuple(takewhile(lambda column: column.name != "version", COLUMNS))
"""The columns that hold the order itself."""
EXPRESSIONS = ", ".join(column.expression or column.name for column in COLUMNS)
"""What the columns are made of, where the arguments have the columns' names."""


def named(template: str, columns: Sequence[Column] = COLUMNS) -> str:
    """A list for an SQL statement: the template once for each column, with its name for every `{}`."""
    return ", ".join(template.replace("{}", column.name) for column in columns)


def updated(update: Update) -> list[Column]:
    """The columns that are updated in this case."""
    return [column for column in COLUMNS if column.update is update]


def arguments(rows: Sequence[OrderRow]) -> Iterator[list[Any]]:
    """The rows' values, a list for each column that is sent."""
    return (list(map(column.value, rows)) for column in SENT if column.value is not None)
