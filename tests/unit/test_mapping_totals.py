"""A mapping with `total` compares the sum of the lines with the document's own total."""

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest

from ingest.domain.orders.order import InvalidDocument, Order
from ingest.mapping.compiled.mapping import MappedDocument
from ingest.mapping.errors import MappingError
from ingest.mapping.load import compile_mapping

MAPPING = """
[order]
id = "id"
status = { value = "placed" }
placed_at = { value = 2024-05-06T07:08:09Z }
currency = { value = "EUR" }
total = "total"

[[lines]]
from = "items"
sku = "sku"
quantity = "quantity"
unit_price = { cases = [
  { when = { path = "price", present = true }, path = "price" },
  { path = "amount", divide_by = "quantity" },
] }
"""
TAX = """
[[lines]]
toward_total = true
sku = { value = "TAX" }
quantity = { value = 1 }
unit_price = "tax"
"""


def read(total: object, *items: dict[str, object], mapping: str = MAPPING, **document: object) -> MappedDocument:
    named = [{"sku": f"item-{index}"} | item for index, item in enumerate(items)]
    body = json.dumps({"id": "a", "total": total, "items": named} | document)
    return compile_mapping(mapping).read(body.encode(), "a")


def lines(order: Order) -> list[tuple[str, str, str]]:
    return [(line.sku, str(line.quantity), str(line.unit_price)) for line in order.lines]


def test_lines_that_add_up_to_the_total_leave_no_mark() -> None:
    mapped = read("5.50", {"quantity": 2, "price": "2.75"})

    assert (mapped.total_difference, mapped.omitted, mapped.order.attributes) == (None, [], {})


@pytest.mark.parametrize(
    ("total", "difference"), [("5.51", "0.01"), ("5.00", "-0.50"), (7, "1.5"), (5.25, "-0.25"), ("1e3", "994.5")]
)
def test_a_difference_is_the_amount_that_the_lines_lack(total: object, difference: str) -> None:
    mapped = read(total, {"quantity": 2, "price": "2.75"})

    assert mapped.total_difference == difference
    assert mapped.order.attributes == {"total_difference": difference}
    assert lines(mapped.order)[1:] == [("DIFFERENCE", "1", difference)]
    assert mapped.order.total == Decimal(str(total))


@pytest.mark.parametrize("total", [None, [], {}])
def test_a_document_without_a_total_is_not_compared(total: object) -> None:
    assert read(total, {"quantity": 2, "price": "2.75"}).total_difference is None


@pytest.mark.parametrize("total", ["five", True, "1e999999", "1e-999999", "9" * 40])
def test_a_total_that_cannot_be_read_does_not_decide_about_the_order(total: object) -> None:
    mapped = read(total, {"quantity": 2, "price": "2.75"})

    assert mapped.total_difference is None
    assert [each.partition(":")[0] for each in mapped.omitted] == ["total"]


@pytest.mark.parametrize(
    ("items", "rounding"),
    [
        ([("10.00", 3)], "0.00"),
        ([("10.00", 3), ("10.00", 3)], "0.00"),
        ([("20.00", 7), ("0.01", 300), ("-10.00", 3)], ""),
        ([("1.00", "0.3")], ""),
        ([("7.77", "2.345")], ""),
    ],
)
def test_the_remainder_of_a_rounded_price_becomes_a_line(items: list[tuple[str, Any]], rounding: str) -> None:
    total = f"{sum(float(amount) for amount, _ in items):.2f}"

    mapped = read(total, *({"quantity": quantity, "amount": amount} for amount, quantity in items))

    assert mapped.total_difference is None
    assert mapped.order.total == pytest.approx(mapped.order.total)
    assert f"{mapped.order.total:.6f}" == f"{float(total):.6f}"
    assert mapped.order.lines[-1].sku == "ROUNDING"
    assert str(mapped.order.lines[-1].unit_price).startswith(rounding)


def test_a_price_that_is_not_rounded_gets_no_further_line() -> None:
    mapped = read(
        "3.00", {"quantity": 2, "amount": "3.00"}, {"quantity": 3, "price": "0.000001"}, {"quantity": 0, "price": "1"}
    )

    assert [sku for sku, _, _ in lines(mapped.order)] == ["item-0", "item-1", "item-2", "DIFFERENCE"]
    assert mapped.total_difference == "-0.000003"


def test_a_quotient_whose_amount_has_no_end_is_compared_as_it_is() -> None:
    per_three = MAPPING.replace('divide_by = "quantity"', 'divide_by = "per"')

    mapped = read("3.33", {"quantity": 1, "amount": "10.00", "per": 3}, mapping=per_three)

    assert mapped.total_difference == "-0.003333"


@pytest.mark.parametrize(
    ("total", "tax", "skus", "difference"),
    [
        ("11.90", "1.90", ["item-0", "TAX"], None),
        ("10.00", "1.90", ["item-0"], None),
        ("10.01", "1.90", ["item-0", "DIFFERENCE"], "0.01"),
        ("11.91", "1.90", ["item-0", "DIFFERENCE"], "1.91"),
        (None, "1.90", ["item-0"], None),
        ("10.00", "0.00", ["item-0"], None),
    ],
)
def test_lines_toward_the_total_are_added_if_the_order_then_adds_up(
    total: str | None, tax: str, skus: list[str], difference: str | None
) -> None:
    mapped = read(total, {"quantity": 1, "price": "10.00"}, mapping=MAPPING + TAX, tax=tax)

    assert [line.sku for line in mapped.order.lines] == skus
    assert mapped.total_difference == difference


@pytest.mark.parametrize(
    ("total", "skus"),
    [
        ("10", ""),
        ("11", "A"),
        ("12", "B"),
        ("13", "C"),
        ("14", "AC"),
        ("16", "ABC"),
        ("15", "BC"),
        ("17", "DIFFERENCE"),
        ("9", "DIFFERENCE"),
    ],
)
def test_the_fewest_tables_that_make_up_the_total_are_added(total: str, skus: str) -> None:
    tables = "".join(
        TAX.replace("TAX", sku).replace('"tax"', f'{{ value = "{amount}" }}')
        for sku, amount in (("A", 1), ("B", 2), ("C", 3))
    )

    mapped = read(total, {"quantity": 1, "price": "10"}, mapping=MAPPING + tables)

    assert "".join(line.sku for line in mapped.order.lines[1:]) == skus
    assert (mapped.total_difference is None) == (total not in {"17", "9"})


def test_tables_of_one_name_are_added_together() -> None:
    parts = TAX.replace("= true", '= "edit"').replace('"tax"', '{ value = "-3" }') + TAX.replace(
        "= true", '= "edit"'
    ).replace('"tax"', '{ value = "1" }')

    assert read("8", {"quantity": 1, "price": "10"}, mapping=MAPPING + parts).total_difference is None
    assert read("7", {"quantity": 1, "price": "10"}, mapping=MAPPING + parts).total_difference == "-3"


@pytest.mark.parametrize(("total", "rest"), [("3.33", None), ("3.34", "0.006667"), ("3.32", "-0.013333")])
def test_a_part_of_an_amount_may_be_rounded_by_half_a_unit(total: str, rest: str | None) -> None:
    part = TAX.replace('"tax"', '{ path = "tax", divide_by = "n", negate = true }')

    mapped = read(total, {"quantity": 1, "price": "10.00"}, mapping=MAPPING + part, tax="20.00", n=3)

    assert mapped.order.total == Decimal(total)
    assert (mapped.total_difference is None) == (rest is None)


def test_lines_of_several_lists_are_read_as_one() -> None:
    several = MAPPING.replace('"items"', '["items", "parts.more"]')

    mapped = read(
        "3", {"quantity": 1, "price": "1"}, mapping=several, parts={"more": [{"sku": "b", "quantity": 2, "price": "1"}]}
    )

    assert [sku for sku, _, _ in lines(mapped.order)] == ["item-0", "b"]
    assert read("1", {"quantity": 1, "price": "1"}, mapping=several).total_difference is None


@pytest.mark.parametrize(
    ("lines", "total", "difference"),
    [
        # Three amounts of 8.403361 are 25.21, and three rounded ones 25.20.
        ([("8.40", 8.403361344537815, 1)] * 3, "25.21", None),
        ([("8.40", 8.403361344537815, 1)] * 3, "25.20", None),
        ([("8.40", 8.403361344537815, 1)] * 3, "25.22", "0.01"),
        ([("8.40", 8.4, 1)] * 3, "25.21", "0.01"),
        ([("0.13", 0.0420168067226891, 3)] * 9, "1.13", None),
        ([("0.13", 0.0420168067226891, 3)] * 9, "1.14", "0.01"),
        # Half a unit more than the rounded value is no rounding.
        ([("10.00", 10.0, 1)], "10.01", "0.01"),
        ([("10.00", None, 1)], "10.01", "0.01"),
        # The price with tax, which rounding does not explain.
        ([("10.00", 11.9, 1)], "11.90", "1.90"),
    ],
)
def test_a_difference_that_the_shops_rounding_explains_becomes_a_line(
    lines: list[tuple[str, float | None, int]], total: str, difference: str | None
) -> None:
    mapping = MAPPING + 'unrounded_price = "exact"\n'
    items: list[dict[str, object]] = [
        {"quantity": quantity, "amount": amount, "exact": exact} for amount, exact, quantity in lines
    ]

    mapped = read(total, *items, mapping=mapping)

    assert mapped.total_difference == difference
    assert difference is not None or str(mapped.order.total.normalize()) == str(float(total)).rstrip("0").rstrip(".")


def test_lines_of_zero_or_without_a_price_are_omitted_on_request() -> None:
    fees = '[[lines]]\nfrom = "fees"\nomit_zero = true\nsku = "sku"\nquantity = { path = "q", default = 1 }\nunit_price = "price"\n'
    priced = [{"sku": "a", "price": "0.0000"}, {"sku": "b"}, {"sku": "c", "price": "-1"}, {"sku": "d", "price": 0}]
    given = [*priced, {"sku": "e", "price": "5", "q": 0}]

    mapped = read("-1", mapping=MAPPING + fees, fees=given)

    assert lines(mapped.order) == [("c", "1", "-1")]


def test_a_sum_adds_the_amounts_that_are_there() -> None:
    taxes = TAX.replace('"tax"', '{ sum = ["a", "b.c", { path = "d", negate = true }], negate = true }')
    omitting = MAPPING + taxes.replace("toward_total", "omit_zero")

    assert lines(read(None, mapping=omitting, a="1.5", b={"c": 2}, d="0.25").order) == [("TAX", "1", "-3.25")]
    assert lines(read(None, mapping=omitting, d="0.25").order) == [("TAX", "1", "0.25")]
    assert lines(read(None, mapping=omitting).order) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MAPPING + '[attributes]\ntotal_difference = "x"', "the name of the difference from `total`: choose another"),
        (MAPPING.replace('total = "total"', "") + TAX, "`toward_total` needs `total` in [order]"),
        (MAPPING + TAX.replace('"tax"', "{ sum = [] }"), "needs at least one field"),
        (
            MAPPING + TAX.replace('"tax"', '{ sum = [{ path = "a", divide_by = "b" }] }'),
            "`divide_by` is for the whole sum",
        ),
    ],
)
def test_declarations_that_cannot_be_used(text: str, problem: str) -> None:
    with pytest.raises(MappingError) as error:
        compile_mapping(text)

    assert error.value.problem == problem


def test_a_mapping_without_a_total_compares_nothing() -> None:
    text = MAPPING.replace('total = "total"', "")

    mapped = read("100", {"quantity": 3, "amount": "10.00"}, mapping=text)

    assert lines(mapped.order) == [("item-0", "3", "3.333333")]
    assert mapped.order.attributes == {}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("quantity", [3, "1e999999999", "1e-999999999", "1" * 5000])
@pytest.mark.parametrize("amount", ["10.00", "1e999999999", "1e-999999999", "0.1" + "3" * 5000])
def test_numbers_of_a_billion_digits_are_not_written_out(quantity: object, amount: str) -> None:
    with suppress(InvalidDocument):
        read(
            "10.00",
            {"quantity": quantity, "amount": amount, "exact": amount},
            mapping=MAPPING + 'unrounded_price = "exact"',
        )
