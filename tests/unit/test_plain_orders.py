"""Decoding a document just for storing it: the same row as by way of the whole order, and the same errors."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, localcontext
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.domain.orders.order import InvalidDocument, Order, OrderLine, decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import PlainOrder, StorableOrder, decode_plain
from ingest.lab.upstream.samples import sample_orders

NOW = datetime(2026, 1, 30, tzinfo=UTC)


def document(*lines: dict[str, Any], **changes: Any) -> bytes:
    values = {"id": "a", "status": "placed", "currency": "GBP", "placed_at": "2010-12-01T08:26:00Z", "lines": lines}
    return json.dumps(values | changes, ensure_ascii=bool(len(lines) % 2)).encode(errors="surrogatepass")


def line(unit_price: Any = "2.55", quantity: Any = 1, **more: Any) -> dict[str, Any]:
    return {"sku": "85123A", "quantity": quantity, "unit_price": unit_price} | more


def row_or_error(decode: Any, body: bytes) -> OrderRow | tuple[type[Exception], str]:
    try:
        order: StorableOrder = decode(body, "a")
    except InvalidDocument as error:
        return type(error), str(error)
    return OrderRow.of(order, NOW, 2, 1.5)


def is_same(body: bytes) -> bool:
    return row_or_error(decode_plain, body) == row_or_error(decode_order, body)


usual_prices = st.from_regex(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?", fullmatch=True, alphabet="0123456789-.")
odd_prices = (
    st.text("0123456789eE+-._ \n", max_size=20)
    | st.from_regex(r"-?[0-9]{0,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,4})?\n?", fullmatch=True)
    | st.decimals().map(str)
    | st.text(max_size=4)
    | st.integers()
    | st.floats()
    | st.none()
)
prices = usual_prices | usual_prices | odd_prices
quantities = st.integers(-(2**53), 2**53) | st.sampled_from(
    [0, 2**53 + 1, 1.5, 6.0, "6", "1.50", "sNaN", "1e5", True, None]
)
texts = st.text(max_size=12) | st.sampled_from(["a\0b", "\\u0000", '"unit_price":"1"', "\ud800"])
lines = st.builds(
    lambda price, quantity, sku, extra: line(price, quantity, sku=sku) | extra,
    prices,
    quantities,
    texts,
    st.dictionaries(st.sampled_from(["description", "extra", "unit_price "]), st.none() | texts, max_size=2),
)
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
header = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", "a\0", 1]),
        "status": texts,
        "updated_at": st.none() | st.datetimes(timezones=st.none() | offsets).map(datetime.isoformat),
        "placed_at": st.datetimes(timezones=offsets).map(datetime.isoformat),
        "customer_id": st.none() | texts,
        "country": st.none() | texts,
        "attributes": st.dictionaries(st.text(max_size=4), texts | st.floats(), max_size=3),
        "total": texts,
        "": texts | st.integers(),
    },
)


@given(st.lists(lines, max_size=6), header)
@example([line("1.00\n2.00")], {})
@example([line("1.00\n")], {})
@example([line("007.50")], {})
@example([line("0.0000001")], {})
@example([line("-0.00", -3), line("-0.0", 0)], {})
@example([line("5", 3), line("-7.125", 2), line("0.1", 0)], {})
@example([line("999999999999999.999999", 2**53)] * 6, {})
@example([line("\u0661.00")], {})
@example([line()], {"": "9.99", "total": "9.98"})
@example([line()], {"": 9})
@example([line()], {"id": "b"})
@example([line()], {"placed_at": "0001-06-01T00:00:00Z"})
@example([line()], {"updated_at": "9999-06-01T00:00:00Z"})
@example([line(), line(description="a\0b")], {"attributes": {"a": ["\0"]}})
@example([line("1e30"), line("1e-30")], {})
@example([line(quantity=2**53 + 1)], {})
def test_a_document_is_stored_as_by_way_of_its_order(lines: list[dict[str, Any]], changes: dict[str, Any]) -> None:
    body = document(*lines, **changes)

    assert is_same(body)


@given(st.data())
def test_a_damaged_document_gives_the_same_row_or_error(data: st.DataObject) -> None:
    body = bytearray(
        document(line("12.50", 3, description="WHITE \\ HANGING"), line("-0.5", -1), attributes={"a": 1.0})
    )

    for _ in range(data.draw(st.integers(1, 3))):
        at, length = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, 8))
        body[at : at + length] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"\\u0000", b"[", b"e", b"0"])
        )

    assert is_same(bytes(body))


@given(st.lists(st.tuples(usual_prices, st.integers(-(2**53), 2**53)), max_size=8))
def test_usual_prices_are_never_made_decimals(priced: list[tuple[str, int]]) -> None:
    order = decode_plain(document(*(line(price, quantity) for price, quantity in priced)), "a")

    assert isinstance(order, PlainOrder)
    assert [each.unit_price for each in order.lines] == [price for price, _ in priced]


@pytest.mark.parametrize("price", [2.55, "2.550000000", "1e2", "007", "1234567890123456", "+1", " 1", "1_0", ""])
def test_other_prices_are_decoded_with_the_whole_order(price: object) -> None:
    body = document(line(), line(price))

    assert is_same(body)
    try:
        assert isinstance(decode_plain(body, "a"), Order)
    except InvalidDocument as error:
        assert "$.lines[1].unit_price" in str(error)  # noqa: PT017  which it is depends on the price


REPEATED = [
    (b'"unit_price": "2.55"', b'"unit_price": "%s", "unit_price": "2.55"'),
    (b'"unit_price": "2.55"', b'"unit_price": "%s", "unit\\u005fprice": "2.55"'),
    (b'"unit_price": "2.55"', b'"\\u0075nit_price": "%s", "unit_price": "2.55"'),
    (b'"lines": ', b'"lines": [{"sku": "1", "quantity": 1, "unit_price": "%s"}], "lines": '),
    (b'"lines": ', b'"\\u006Cines": [{"sku": "1", "quantity": 1, "unit_pric\\u0065": "%s"}], "lines": '),
]


@pytest.mark.parametrize(("written", "repeated"), REPEATED, ids=["price", "last", "first", "lines", "lines escaped"])
@pytest.mark.parametrize("price", [b"ten", b"", b"1_0", b"NaN", b"2.50"])
def test_a_price_that_a_later_one_replaces_is_checked_as_in_the_whole_order(
    written: bytes, repeated: bytes, price: bytes
) -> None:
    body = document(line()).replace(written, repeated % price)

    assert is_same(body)
    assert isinstance(row_or_error(decode_plain, body), OrderRow) == (price not in (b"ten", b""))


@pytest.mark.parametrize("text", ["unit_price", '"unit_price"', "caf\u00e9", "\u0001\\u0075\n"])
def test_texts_that_look_like_a_price_are_stored_as_they_are(text: str) -> None:
    for body in (
        document(line(description=text)),
        document(line(), line(description=text)),
        document(line(unit_price="1", was={text: "ten"})),
        document(line(), offer={text: "ten"}),
    ):
        assert is_same(body)
        assert isinstance(row_or_error(decode_plain, body), OrderRow)


def test_prices_are_added_exactly_however_many_different_ones_there_are() -> None:
    body = document(*(line(f"{number // 100}.{number % 100:02}") for number in range(5_000)))

    for _ in range(2):
        assert is_same(body)


def test_the_total_does_not_depend_on_the_decimal_context() -> None:
    body = document(line("123456789012345.123456", 2**53), line("-0.01", 7))
    expected = row_or_error(decode_order, body)

    with localcontext(Context(prec=2, Emax=3, Emin=-3)):
        found = row_or_error(decode_plain, body)

    assert found == expected


def test_every_sample_order_is_stored_as_by_way_of_its_order() -> None:
    for order_id, body in sample_orders().items():
        plain = decode_plain(body, order_id)

        assert isinstance(plain, PlainOrder)
        assert OrderRow.of(plain, NOW, 1, 0.0) == OrderRow.of(decode_order(body, order_id), NOW, 1, 0.0)


def test_a_document_nested_too_deeply_is_invalid() -> None:
    body = document(line())[:-1] + b',"note":' + b"[" * 100_000

    assert is_same(body)


def test_a_plain_order_and_its_lines_have_all_fields_of_an_order_in_the_same_order() -> None:
    [line] = get_args(get_type_hints(PlainOrder)["lines"])

    assert PlainOrder.__struct_fields__ == (*Order.__struct_fields__, "total")
    assert line.__struct_fields__ == OrderLine.__struct_fields__
