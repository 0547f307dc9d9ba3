"""An operator sees the fields in which stored orders and their new form differ."""

import json

from ingest.domain.orders.field_differences import EXAMPLES, FieldDifference, FieldSummary, field_differences


def test_a_column_within_lines_and_attributes_is_named() -> None:
    line = {"sku": "A", "quantity": 1, "unit_price": "2.50"}
    lines = (json.dumps([line, line]), json.dumps([line | {"unit_price": "2.5"}, line | {"sku": "B"}]))
    attributes = ('{"channel":"web","same":{"b":1,"a":2},"flag":true}', '{"same":{"a":2,"b":1},"flag":1,"new":null}')

    found = field_differences({"status": ("placed", None), "lines": lines, "attributes": attributes})

    assert found == [
        FieldDifference("status", "placed", None),
        FieldDifference("lines[].unit_price", "2.50", "2.5"),
        FieldDifference("lines[].sku", "A", "B"),
        FieldDifference("attributes.channel", "web", None),
        FieldDifference("attributes.flag", "true", "1"),
        FieldDifference("attributes.new", None, "null"),
    ]


def test_another_number_of_lines_is_one_difference() -> None:
    assert field_differences({"lines": ("[{}]", "[{},{}]")}) == [FieldDifference("lines", "1 lines", "2 lines")]


def test_a_summary_counts_orders_by_field_and_keeps_some_examples() -> None:
    summary = FieldSummary()
    for number in range(10):
        summary.add(str(number), [FieldDifference("status", "a", "b")])
    summary.add("x", [FieldDifference("country", None, "x" * 1000)])

    assert summary.by_frequency() == [("status", 10), ("country", 1)]
    assert [each.order_id for each in summary.examples["status"]] == [str(number) for number in range(EXAMPLES)]
