"""The rows that are sent to PostgreSQL: each value in the column of its name."""

from datetime import UTC, datetime

from msgspec.structs import replace

from ingest.domain.orders.order_row import OrderRow
from ingest.store.orders.columns import SENT, arguments

NOW = datetime(2026, 1, 30, tzinfo=UTC)


def row(order_id: str) -> OrderRow:
    return OrderRow(order_id, "placed", "GBP", None, "France", NOW, None, "2.50", "[]", NOW, 1, 1.5, None, None)


def test_a_row_has_the_columns_that_are_sent_in_their_order() -> None:
    assert [*(column.name for column in SENT), "note"] == list(OrderRow.__struct_fields__)


def test_each_column_has_the_values_of_all_rows() -> None:
    rows = [
        row("a"),
        replace(row("b"), customer_id="1", updated_at=NOW, attributes="{}", document="{}"),
    ]

    sent = dict(zip((column.name for column in SENT), arguments(rows), strict=True))

    assert sent == {column.name: tuple(getattr(row, column.name) for row in rows) for column in SENT}


def test_a_column_without_a_value_is_sent_empty() -> None:
    sent = dict(zip((column.name for column in SENT), arguments([row("a"), row("b")]), strict=True))

    assert {name for name, values in sent.items() if not values} == {
        "customer_id",
        "updated_at",
        "attributes",
        "document",
    }


def test_no_rows_are_a_column_each_without_values() -> None:
    assert list(map(len, arguments([]))) == [0] * len(SENT)
