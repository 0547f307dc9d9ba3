"""The effect of each key of a mapping file on a value."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any

import pytest

from ingest.domain.orders.clean_json import clean_json
from ingest.domain.orders.order import InvalidDocument, Order
from ingest.mapping.compiled.mapping import MappedDocument
from ingest.mapping.load import compile_mapping, load_mapping

DOCUMENT: dict[str, Any] = {"id": "a", "status": "placed", "at": "2024-05-06T07:08:09Z", "currency": "EUR", "items": []}
MAPPING = """
[order]
id = "id"
status = "status"
placed_at = "at"
currency = "currency"
{order}
[[lines]]
{lines}
[attributes]
{attributes}
"""
LINES = 'from = "items"\nsku = "sku"\nquantity = "quantity"\nunit_price = "price"'


def mapped(
    document: dict[str, Any] | None = None, *, order: str = "", lines: str = LINES, attributes: str = ""
) -> Order:
    mapping = compile_mapping(MAPPING.format(order=order, lines=lines, attributes=attributes))
    return mapping.decode(json.dumps(DOCUMENT | (document or {})).encode(), None)


def attribute(field: str, value: Any = None, **document: Any) -> Any:
    """The value `v` as mapped by a field of the attributes, or None if it is left out."""
    given = {} if value is None else {"v": value}
    return mapped(given | document, attributes=f"x = {field}").attributes.get("x")


def raw(field: str, number: str) -> MappedDocument:
    """What becomes of a value `v` that stands in the document as this JSON."""
    mapping = compile_mapping(MAPPING.format(order="", lines=LINES, attributes=f"x = {field}"))
    return mapping.read(json.dumps(DOCUMENT | {"v": "V"}).replace('"V"', number).encode(), "a")


def raw_attribute(field: str, number: str) -> Any:
    return raw(field, number).order.attributes["x"]


def refused(field: str, value: Any = None, **document: Any) -> str:
    """Why a value is left out of the attributes."""
    mapping = compile_mapping(MAPPING.format(order="", lines=LINES, attributes=f"x = {field}"))
    given = {} if value is None else {"v": value}
    mapped = mapping.read(json.dumps(DOCUMENT | given | document).encode(), None)
    assert "x" not in mapped.order.attributes
    return problem_of(mapped)


def problem_of(mapped: MappedDocument) -> str:
    (omitted,) = mapped.omitted
    assert omitted.startswith("x: ")
    return omitted.removeprefix("x: ")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("v", 1),
        ("a.b", 2),
        ("a.c.d", 3),
        ("a.list[1].e", 5),
        ("a.list[2].e", None),
        ("a.list[].e", [4, 5]),
        ("a.nested[].list[]", [1, 2, 3]),
        ("a.missing.d", None),
        ("a.null.d", None),
        ("a.empty.d", None),
        ("a.empty[0]", None),
        ("$.a.b", 2),
        ("a.with-hyphen", 6),
    ],
)
def test_a_path_leads_to_a_value_or_to_none(path: str, value: object) -> None:
    inner = {
        "b": 2,
        "c": {"d": 3},
        "list": [{"e": 4}, {"e": 5}],
        "nested": [{"list": [1, 2]}, {"list": [3]}, {}],
        "null": None,
        "empty": [],
        "with-hyphen": 6,
    }

    assert attribute(f'"{path}"', 1, a=inner) == value


def test_a_key_of_any_kind_is_written_in_quotes() -> None:
    assert attribute("""'"a.b c".d'""", **{"a.b c": {"d": 1}}) == 1


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("a.b.c.d", "expected `object`, got `int` - at `$.a.b`"),
        ("a.list.e", "expected `object`, got `array` - at `$.a.list`"),
        ("a[0]", "expected `array`, got `object` - at `$.a`"),
        ("a[].b", "expected `array`, got `object` - at `$.a`"),
        ("a.list[].e.f.g", "expected `object`, got `int` - at `$.a.list[0].e`"),
        ("$.a.b.c", "expected `object`, got `int` - at `$.a.b`"),
    ],
)
def test_something_else_on_the_way_is_an_error(path: str, error: str) -> None:
    assert refused(f'"{path}"', a={"b": 2, "list": [{"e": 4}]}) == error


def test_a_document_in_an_envelope() -> None:
    text = 'envelope = "data.order"\n' + MAPPING.format(order="", lines=LINES, attributes='x = "$.status"')
    optional = compile_mapping("envelope_optional = true\n" + text)

    assert compile_mapping(text).decode(json.dumps({"data": {"order": DOCUMENT}}).encode(), "a").attributes == {
        "x": "placed"
    }
    assert optional.decode(json.dumps(DOCUMENT).encode(), "a").id == "a"
    with pytest.raises(InvalidDocument, match=r"no value for the order - at `\$\.data\.order`"):
        compile_mapping(text).decode(json.dumps(DOCUMENT).encode(), "a")


def field(options: str, kind: str, path: str = "v") -> str:
    return f'{{ path = "{path}", type = "{kind}"{options and ", " + options} }}'


@pytest.mark.parametrize(
    ("kind", "options", "value", "expected"),
    [
        ("text", "", "Zoë", "Zoë"),
        ("text", "", 9007199254740993, "9007199254740993"),
        ("text", "", 12345678901234567890123, "12345678901234567890123"),
        ("text", "strip = true", "  a b ", "a b"),
        ("text", 'remove_prefix = "gid://shop/Order/"', "gid://shop/Order/17", "17"),
        ("text", "html = true", "A &amp; B &ndash; C", "A & B \N{EN DASH} C"),
        ("text", 'change_case = "upper"', "eur", "EUR"),
        ("text", 'values = { paid = "placed", 2 = "sent" }', "paid", "placed"),
        ("text", 'values = { paid = "placed", 2 = "sent" }', 2, "sent"),
        ("text", 'values = { true = "test" }, otherwise = "live"', True, "test"),
        ("text", 'values = { true = "test" }, otherwise = "live"', False, "live"),
        ("text", 'none = ["", "-"], default = "?"', "-", "?"),
        ("integer", "", 3, 3),
        ("integer", "", "-3", -3),
        ("integer", "", 3.0, 3),
        ("decimal", "", "12.30", Decimal("12.30")),
        ("decimal", "", 12, Decimal(12)),
        ("decimal", "negate = true", "12.30", Decimal("-12.30")),
        ("decimal", "negate = true", "0.00", Decimal("0.00")),
        ("decimal", "minor_units = 2", 1050, Decimal("10.50")),
        ("decimal", "minor_units = 3", "-1", Decimal("-0.001")),
        ("decimal", 'minor_units = "currency"', 1050, Decimal("10.50")),
        ("quantity", "", 2.0, 2),
        ("quantity", "", "2.5", Decimal("2.5")),
        ("boolean", "", False, False),
        ("boolean", "", "true", True),
        ("boolean", "", 0, False),
        ("timestamp", "", "2025-01-23T23:10:16-05:00", datetime(2025, 1, 24, 4, 10, 16, tzinfo=UTC)),
        ("timestamp", "", "2022-05-04T11:45:00.123Z", datetime(2022, 5, 4, 11, 45, 0, 123000, tzinfo=UTC)),
        ("timestamp", 'zone = "UTC"', "2016-07-01 00:00:00", datetime(2016, 7, 1, tzinfo=UTC)),
        ("timestamp", 'zone = "+02:00"', "2016-07-01T00:00:00", datetime(2016, 6, 30, 22, tzinfo=UTC)),
        ("timestamp", 'zone = "Europe/Berlin"', "2016-07-01T00:00:00", datetime(2016, 6, 30, 22, tzinfo=UTC)),
        ("timestamp", 'zone = "Europe/Berlin"', "2016-07-01T00:00:00Z", datetime(2016, 7, 1, tzinfo=UTC)),
        ("timestamp", 'format = "unix"', 1467331200, datetime(2016, 7, 1, tzinfo=UTC)),
        ("timestamp", 'format = "unix"', "1467331200.25", datetime(2016, 7, 1, 0, 0, 0, 250000, tzinfo=UTC)),
        ("timestamp", 'format = "unix_ms"', 1467331200001, datetime(2016, 7, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        ("json", "", {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    ],
)
def test_a_value_is_converted(kind: str, options: str, value: object, expected: object) -> None:
    converted = attribute(field(options, kind), value)

    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("kind", "options", "value", "error"),
    [
        ("text", "", True, "expected `str` or `int`, got `bool`"),
        ("text", "", 1.5, "expected `str` or `int`, got `float`"),
        ("text", 'values = { paid = "placed" }', "secret", "a value that the mapping does not list"),
        ("text", "html = true", "&#" + "9" * 5_000 + ";", "a character reference out of range"),
        ("integer", "", 3.5, "expected an integer, got `float`"),
        ("integer", "", "3.0", "got a `str` that is not an integer"),
        ("decimal", "", "1_000", "got a `str` that is not a decimal"),
        ("decimal", "", " 1", "got a `str` that is not a decimal"),
        ("decimal", "", "NaN", "got a `str` that is not a decimal"),
        ("decimal", "", "Infinity", "got a `str` that is not a decimal"),
        ("decimal", "", "1E+99999999999", "got a `str` that is not a decimal"),
        ("decimal", "", "\N{ARABIC-INDIC DIGIT ONE}", "got a `str` that is not a decimal"),
        ("decimal", "minor_units = 2", "1e99", "an amount out of range"),
        ("decimal", 'divide_by = "zero"', "1", "a division by zero"),
        ("decimal", 'divide_by = "missing"', "1", "a missing divisor"),
        ("boolean", "", "yes", "got a `str` that is not a boolean"),
        ("boolean", "", 2, "expected a boolean, got `int`"),
        ("timestamp", "", "2016-07-01T00:00:00", "a timestamp without a time zone, and without `zone` in the mapping"),
        ("timestamp", 'format = "unix"', 10**30, "a timestamp out of range"),
        ("timestamp", 'format = "unix_ms"', "1e999999999", "a timestamp out of range"),
        ("timestamp", "", 1467331200, "expected `str` with a timestamp, got `int`"),
    ],
)
def test_a_value_that_cannot_be_converted_is_told_with_its_place(
    kind: str, options: str, value: object, error: str
) -> None:
    assert refused(field(options, kind), value, zero=0) == f"{error} - at `$.v`"


@pytest.mark.parametrize(
    ("currency", "price"), [("EUR", "12.34"), ("JPY", "1234"), ("jpy", "1234"), ("KWD", "1.234"), ("XXX", "12.34")]
)
def test_minor_units_by_the_currency(currency: str, price: str) -> None:
    lines = LINES.replace('"price"', '{ path = "price", minor_units = "currency" }')

    order = mapped({"currency": currency, "items": [{"sku": "a", "quantity": 1, "price": 1234}]}, lines=lines)

    assert str(order.lines[0].unit_price) == price


@pytest.mark.parametrize(
    ("options", "total", "quantity", "price"),
    [
        ("", "10.00", 3, "3.333333"),
        ("", "10.00", 4, "2.5"),
        ("digits = 2", "20.00", 3, "6.67"),
        ("", "1e-20", 1, "0.000000"),
        ("", "-10.00", "2.5", "-4"),
    ],
)
def test_a_unit_price_from_the_total_of_a_line(options: str, total: str, quantity: object, price: str) -> None:
    divided = f'{{ path = "total", divide_by = "quantity"{options and ", " + options} }}'

    order = mapped(
        {"items": [{"sku": "a", "quantity": quantity, "total": total}]}, lines=LINES.replace('"price"', divided)
    )

    assert order.lines[0].unit_price == Decimal(price)


def test_amounts_keep_every_digit() -> None:
    written = '[{"sku": "a", "quantity": 1, "price": 0.1000000000000000055511151231257827}]'
    body = json.dumps(DOCUMENT | {"items": "ITEMS"}).replace('"ITEMS"', written).encode()

    order = compile_mapping(MAPPING.format(order="", lines=LINES, attributes="")).decode(body, "a")

    assert str(order.lines[0].unit_price) == "0.1000000000000000055511151231257827"


def test_numbers_that_no_decimal_can_hold_are_refused_where_they_are_used() -> None:
    mapping = compile_mapping(MAPPING.format(order="", lines=LINES, attributes='x = "x"'))
    huge = "1e99999999999999999999"
    unused, used = [json.dumps(DOCUMENT | {name: "N"}).replace('"N"', huge).encode() for name in ("unused", "x")]

    assert mapping.read(unused, "a").omitted == []
    assert problem_of(mapping.read(used, "a")) == "a number out of range - at `$.x`"


@pytest.mark.parametrize(
    ("kind", "source", "value", "expected"),
    [
        ("timestamp", 'path = "v", format = "unix"', 1467331200, datetime(2016, 7, 1, tzinfo=UTC)),
        ("timestamp", 'path = "v", format = "unix_ms"', 1467331200001, datetime(2016, 7, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        ("decimal", 'path = "v", minor_units = 2', 123456789, Decimal("1234567.89")),
        ("decimal", 'jmespath = "sum([v, v])"', "123456789.01", Decimal("246913578.02")),
        ("decimal", 'jmespath = "avg([v, v])"', "123456789.01", Decimal("123456789.01")),
        ("decimal", 'jmespath = "abs(v)"', "-123456789.01", Decimal("123456789.01")),
    ],
)
def test_the_decimal_context_that_user_code_has_set_changes_no_value(
    kind: str, source: str, value: object, expected: object
) -> None:
    with localcontext(prec=3):
        assert raw_attribute(f'{{ {source}, type = "{kind}" }}', str(value)) == expected


def test_jmespath_adds_exactly_or_not_at_all() -> None:
    field = '{ jmespath = "sum([v, `1`])" }'
    number = "12345678901234567890.123456789012345"

    assert raw_attribute(field, number) == Decimal("12345678901234567891.123456789012345")
    assert "expression of attributes.x cannot be applied" in problem_of(raw(field, "1e-61"))


def test_a_document_that_is_a_list_has_no_parts() -> None:
    parts = '[parts.items]\nurl = "/orders/{order_id}/items"\nitems = "items"\n'
    text = 'envelope = "[0]"\n' + parts + MAPPING.format(order="", lines=LINES, attributes="")

    assert compile_mapping(text).decode(json.dumps([DOCUMENT]).encode(), "a").id == "a"


def test_one_byte_order_mark_is_skipped_and_a_document_with_many_is_no_json() -> None:
    mapping = compile_mapping(MAPPING.format(order="", lines=LINES, attributes=""))
    mark, body = b"\xef\xbb\xbf", json.dumps(DOCUMENT).encode()

    assert mapping.decode(clean_json(mark + body), "a").id == "a"
    for marks in (2, 5_000):
        with pytest.raises(InvalidDocument, match=r"JSON is malformed: invalid character \(byte 0\)"):
            mapping.decode(clean_json(mark * marks + body), "a")
        assert mapping.identify(clean_json(mark * marks + body)) is None


def test_the_first_value_there_is() -> None:
    several = '{ first = ["v", { path = "w", values = { one = "1" } }, "z"], none = ["", 0], default = "?" }'

    assert attribute(several, "a", w="one") == "a"
    assert attribute(several, "", w="one") == "1"
    assert attribute(several, 0, z="c") == "c"
    assert attribute(several, z=0) == "?"


def test_texts_are_joined_if_each_has_a_value() -> None:
    joined = '{ concat = [{ path = "v" }, "/", { path = "w", default = "?" }], change_case = "upper" }'

    assert attribute(joined, "a", w=1) == "A/1"
    assert attribute(joined, "a") == "A/?"
    assert attribute(joined, w="b") is None


def test_the_first_case_that_holds() -> None:
    cases = """{ cases = [
        { when = { path = "cancelled_at", present = true }, value = "cancelled" },
        { when = [{ path = "v", equals = ["paid", 1] }, { path = "w", differs = true }], value = "paid" },
        { when = { path = "v", equals = "other" }, path = "w" },
    ], default = "open" }"""

    assert attribute(cases, "paid", cancelled_at="2024-01-01") == "cancelled"
    assert attribute(cases, "paid") == "paid"
    assert attribute(cases, 1) == "paid"
    # True is not 1, in neither direction.
    assert attribute(cases, True) == "open"
    assert attribute(cases, "paid", w=True) == "open"
    assert attribute(cases, "paid", w=1) == "paid"
    assert attribute(cases, "other", w="more") == "more"
    assert attribute(cases, "other") == "open"


def test_an_attribute_without_a_value_is_left_out() -> None:
    order = mapped({"b": None, "c": []}, attributes='a = "a"\nb = "b"\nc = { path = "c", none = [[]] }\nd = "status"')

    assert order.attributes == {"d": "placed"}


def test_jmespath_where_a_path_is_not_enough() -> None:
    document = {"v": [{"n": "a", "p": 1.10}, {"n": "b", "p": 2.20}]}

    assert attribute("{ jmespath = \"v[?n == 'b'] | [0].n\" }", **document) == "b"
    # Exact: in binary floating point it is 3.3000000000000003.
    assert attribute('{ jmespath = "sum(v[].p)", type = "decimal" }', **document) == Decimal("3.3")
    assert attribute('{ jmespath = "max_by(v, &p).n" }', **document) == "b"
    assert attribute('{ jmespath = "to_number(w)", type = "decimal" }', w="1.10", **document) == Decimal("1.10")
    assert attribute('{ jmespath = "to_string(v[0].p)" }', **document) == "1.1"
    assert attribute('{ jmespath = "avg(v[].p)", type = "decimal" }', **document) == Decimal("1.65")
    assert attribute('{ jmespath = "sort_by(v, &p)[-1].n" }', **document) == "b"
    assert attribute('{ jmespath = "v[?p > `1.5`].n | [0]" }', **document) == "b"
    assert attribute('{ jmespath = "type(v[0].p)" }', **document) == "number"
    assert attribute('{ jmespath = "`0.5`", type = "decimal" }', **document) == Decimal("0.5")
    assert attribute('{ jmespath = "nothing.at.all" }', **document) is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("v[?p == `2.55`].n", ["b"]),
        ("v[?p != `2.55`].n", ["a"]),
        ("v[?p <= `2.55`].n", ["a", "b"]),
        ("contains(v[].p, `2.55`)", True),
        ("v[?contains(`[1.1, 2.55]`, p)].n", ["a", "b"]),
        ("sum([v[0].p, `0.2`])", Decimal("1.3")),
        ("to_number(`2.55`)", Decimal("2.55")),
        ("`0.5`", Decimal("0.5")),
        (r"`{\"rate\": 7.7}`", {"rate": Decimal("7.7")}),
    ],
)
def test_numbers_of_a_jmespath_expression_are_as_exact_as_those_of_a_document(
    expression: str, expected: object
) -> None:
    document = {"v": [{"n": "a", "p": 1.10}, {"n": "b", "p": 2.55}]}

    assert attribute(f'{{ jmespath = "{expression}" }}', **document) == expected


@pytest.mark.timeout(20)
@pytest.mark.parametrize("number", ["1e999999999", "-1e999999999", "1e61"])
@pytest.mark.parametrize("function", ["floor", "ceil"])
def test_jmespath_does_not_write_out_a_number_of_a_billion_digits(function: str, number: str) -> None:
    problem = problem_of(raw(f'{{ jmespath = "{function}(v)" }}', number))

    assert "expression of attributes.x cannot be applied (OverflowError)" in problem


def test_a_jmespath_function_that_cannot_be_applied_is_told_without_the_value() -> None:
    assert refused('{ jmespath = "sum(v)" }', ["secret"]) == (
        "the JMESPath expression of attributes.x cannot be applied (JMESPathTypeError) - at `$`"
    )
    assert refused('{ jmespath = "v", type = "decimal" }', "secret") == (
        "got a `str` that is not a decimal - at `$ (the result of attributes.x)`"
    )


def test_lines_of_several_lists() -> None:
    lines = (
        LINES
        + """
where = { path = "parent", present = false }
[[lines]]
from = "shipping"
optional = true
sku = { value = "SHIPPING" }
description = { concat = [{ path = "$.currency" }, " ", { path = "name" }] }
quantity = { value = 1 }
unit_price = { path = "amount" }
[[lines]]
jmespath = "items[].discounts[] | [?amount]"
sku = { value = "DISCOUNT" }
quantity = { value = 1 }
unit_price = { path = "amount", negate = true }
[[lines]]
where = { path = "tax", present = true }
sku = { value = "TAX" }
quantity = { value = 1 }
unit_price = "tax"
"""
    )
    document = {
        "items": [
            {"sku": "a", "quantity": 2, "price": "3.00", "discounts": [{"amount": "0.50"}, {}]},
            {"sku": "b", "quantity": 1, "price": "0", "parent": 1},
        ],
        "shipping": [{"amount": 4, "name": "post"}],
        "tax": "1.00",
    }

    order = mapped(document, lines=lines)

    assert [(line.sku, line.description, str(line.unit_price)) for line in order.lines] == [
        ("a", None, "3.00"),
        ("SHIPPING", "EUR post", "4"),
        ("DISCOUNT", None, "-0.50"),
        ("TAX", None, "1.00"),
    ]
    assert order.total == Decimal("10.50")
    assert len(mapped({"items": []}, lines=lines).lines) == 0


def test_an_id_that_the_document_does_not_have() -> None:
    text = MAPPING.format(order="", lines=LINES, attributes="").replace('id = "id"', "id = { requested = true }")

    assert compile_mapping(text).decode(json.dumps(DOCUMENT).encode(), "b").id == "b"


def test_of_which_order_a_document_is_does_not_take_the_rest_of_it() -> None:
    shopify, amazon, woocommerce = [load_mapping(name) for name in ("shopify", "amazon", "woocommerce")]

    assert shopify.identify(b'{"order": {"id": 17}}') == shopify.identify(b'{"id": 17}') == "17"
    assert amazon.identify(b'{"AmazonOrderId": "902-1"}') == "902-1"
    assert [woocommerce.identify(body) for body in (b"{", b"[]", b"{}", b'{"id": true}', b'"a"')] == [None] * 5


def test_a_quantity_that_no_double_can_hold_stays_exact() -> None:
    order = mapped({"items": [{"sku": "a", "quantity": 2**53 + 1, "price": 1}]})

    assert order.total == 2**53 + 1
    assert order.lines_json() == b'[{"sku":"a","quantity":"9007199254740993","unit_price":"1","description":null}]'


def test_times_have_the_offset_of_the_document() -> None:
    order = mapped({"at": "2025-01-23T23:10:16-05:00"}, order='updated_at = "at"')

    assert (
        order.updated_at == order.placed_at == datetime(2025, 1, 23, 23, 10, 16, tzinfo=timezone(timedelta(hours=-5)))
    )
