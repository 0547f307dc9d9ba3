"""Valid order documents are kept exactly, and all others are `InvalidDocument`, never another error."""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.domain.orders.order import InvalidDocument, Order, TruncatedDocument, decode_order
from ingest.domain.orders.plain_order import StorableOrder, decode_plain

Decode = Callable[[bytes, str], StorableOrder]
SECRET = "Q7-no-one-may-read-this"


def document(**changes: Any) -> dict[str, Any]:
    return {
        "id": "a",
        "status": "placed",
        "currency": "GBP",
        "placed_at": "2010-12-01T08:26:00Z",
        "lines": [],
    } | changes


def line(**changes: Any) -> dict[str, Any]:
    return {"sku": "85123A", "quantity": 1, "unit_price": "2.55"} | changes


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def priced(raw: str, quantity: int = 1) -> bytes:
    """A document with a price as it stands in JSON."""
    body = encoded(document(lines=[line(unit_price="PRICE", quantity=quantity)]))
    return body.replace(b'"PRICE"', raw.encode())


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
prices = st.builds(lambda digits, exponent: Decimal(digits).scaleb(exponent), st.integers(-(10**12), 10**12), st.integers(-10, 6))  # fmt: skip
quantities = st.integers(-(2**53), 2**53)
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31, 23, 59, 59), timezones=offsets)  # noqa: DTZ001  Hypothesis adds the zone
lines = st.fixed_dictionaries(
    {"sku": texts, "quantity": quantities, "unit_price": prices}, optional={"description": st.none() | texts}
)
documents = st.fixed_dictionaries(
    {
        "id": st.just("a"),
        "status": texts,
        "currency": texts,
        "placed_at": moments,
        "lines": st.lists(lines, max_size=10),
    },
    optional={
        "updated_at": st.none() | moments,
        "customer_id": st.none() | texts,
        "country": st.none() | texts,
        "note": texts,
    },
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("2.55"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def in_json(value: Any) -> Any:
    match value:
        case Decimal():
            return str(value)
        case datetime():
            return value.isoformat()
        case _:
            raise TypeError(value)


@given(documents)
def test_a_valid_document_is_kept_exactly(given_document: dict[str, Any]) -> None:
    body = json.dumps(given_document, default=in_json).encode()

    order = decode_order(body, "a")

    for name in ("id", "status", "currency", "placed_at", "updated_at", "customer_id", "country"):
        assert getattr(order, name) == given_document.get(name)
    assert len(order.lines) == len(given_document["lines"])
    for kept, sent in zip(order.lines, given_document["lines"], strict=True):
        assert (kept.sku, kept.quantity, kept.description) == (sent["sku"], sent["quantity"], sent.get("description"))
        assert kept.unit_price.as_tuple() == sent["unit_price"].as_tuple()


@given(documents)
def test_the_total_is_the_exact_sum(given_document: dict[str, Any]) -> None:
    order = decode_order(json.dumps(given_document, default=in_json).encode(), "a")

    exact = sum((Fraction(sent["unit_price"]) * sent["quantity"] for sent in given_document["lines"]), Fraction(0))
    assert Fraction(order.total) == exact


@given(documents)
def test_stored_lines_contain_prices_as_strings_and_are_otherwise_unchanged(given_document: dict[str, Any]) -> None:
    order = decode_order(json.dumps(given_document, default=in_json).encode(), "a")

    stored = json.loads(order.lines_json())

    expected = [
        {"description": None} | sent | {"unit_price": str(sent["unit_price"])} for sent in given_document["lines"]
    ]
    assert stored == expected


@pytest.mark.parametrize("raw", ["2.55", '"2.55"', "0.1", "-0.10", "1e2", '"1E+2"', "0", "-7", "123456789012345678.12"])
def test_a_price_is_exact_whether_it_is_sent_as_a_number_or_a_string(raw: str) -> None:
    order = decode_order(priced(raw), "a")

    assert order.lines[0].unit_price == Decimal(raw.strip('"'))
    assert str(order.lines[0].unit_price) == str(Decimal(raw.strip('"')))


@pytest.mark.parametrize(
    "raw",
    ["1_000.5", " 1.5", "1.5 ", "\u00a01.5", "\t1.5", "1.5\n", "+1.5", ".5", "5.", "-.5", "1_0e1", "1e1_0", "\u0661\u0662.\u0663", "\uff11", "--1", "1.5-"],
)  # fmt: skip
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_price_string_must_be_written_like_a_json_number(raw: str, *, ascii_only: bool) -> None:
    body = json.dumps(document(lines=[line(), line(unit_price=raw), line()]), ensure_ascii=ascii_only).encode()

    with pytest.raises(InvalidDocument, match=r"\$\.lines\[1\]\.unit_price") as refused:
        decode_order(body, "a")

    assert raw not in str(refused.value)


@pytest.mark.parametrize("name", [rb"unit\u005fprice", rb"unit_pric\u0065", rb"\u0075nit_price"])
@pytest.mark.parametrize("gap", [b"", b" ", b"\n\t "])
def test_an_invalid_price_is_found_however_the_document_is_written(name: bytes, gap: bytes) -> None:
    body = encoded(document(lines=[line(unit_price="1_0")])).replace(
        b'"unit_price": ', b'"' + name + b'"' + gap + b":" + gap
    )

    with pytest.raises(InvalidDocument, match="unit_price"):
        decode_order(body, "a")


@pytest.mark.parametrize("raw", ["-2.55", "1e2", "-1.50E-3", "1e+05", "007", "5", "0", "123456789.123456789"])
@pytest.mark.parametrize("escaped", [True, False])
def test_a_price_string_may_be_any_json_number(raw: str, *, escaped: bool) -> None:
    body = encoded(document(note="\u00e9" if escaped else "", lines=[line(unit_price=raw), line(unit_price=7.5)]))

    assert str(decode_order(body, "a").lines[0].unit_price) == str(Decimal(raw))


@pytest.mark.parametrize("written", [1.5, "1.5", "0.750", -2.25])
def test_a_quantity_may_be_fractional(written: float | str) -> None:
    order = decode_order(encoded(document(lines=[line(quantity=written, unit_price="2.55")])), "a")

    assert order.lines[0].quantity == Decimal(str(written))
    assert order.total == Decimal(str(written)) * Decimal("2.55")


NUMBERS = [
    "0",
    "-0.0",
    "1",
    "2.5",
    "1e308",
    "-1.7976931348623157e308",
    "5e-324",
    "1e-999",
    "0.1000000000000000055",
    "9" * 30,
]


@pytest.mark.parametrize("decode", [decode_order, decode_plain])
@pytest.mark.parametrize("number", [*NUMBERS, "1e999", "-1e999", "9" * 400 + ".0", "9" * 5000, "1.", "NaN"])
def test_numbers_of_attributes_are_those_of_the_decoder_of_json(decode: Decode, number: str) -> None:
    body = encoded(document(attributes={"a": ["NUMBER"]})).replace(b'"NUMBER"', number.encode())
    try:
        expected = msgspec.json.encode(msgspec.json.decode(body)["attributes"])
    except msgspec.DecodeError as error:
        with pytest.raises(InvalidDocument, match=re.escape(str(error).partition(" (byte")[0].partition(" - at")[0])):
            decode(body, "a")
    else:
        assert decode(body, "a").attributes_json() == expected


@pytest.mark.parametrize("decode", [decode_order, decode_plain])
def test_no_number_takes_much_longer_than_another(decode: Decode) -> None:
    def took(number: bytes) -> float:
        body = encoded(document(attributes={"a": "NUMBERS"})).replace(
            b'"NUMBERS"', b"[%b]" % b",".join([number] * 20_000)
        )
        started = time.process_time()
        decode(body, "a")
        return time.process_time() - started

    # It took six hundred times as long.
    assert min(took(b"1e308") for _ in range(3)) < 30 * max(took(b"1e30") for _ in range(3))


def test_attributes_are_kept_as_they_are() -> None:
    order = decode_order(encoded(document(attributes={"gift": True, "tags": ["a", "\\u0000"]})), "a")

    assert msgspec.json.decode(order.attributes_json()) == {"gift": True, "tags": ["a", "\\u0000"]}


def test_a_price_member_elsewhere_in_the_document_is_not_validated() -> None:
    body = encoded(document(offer={"unit_price": "1_0"}, lines=[line(was={"unit_price": " 1 "})]))

    assert decode_order(body, "a").lines[0].unit_price == Decimal("2.55")


@given(st.binary() | st.text().map(str.encode))
def test_arbitrary_bytes_are_not_an_order(body: bytes) -> None:
    with pytest.raises(InvalidDocument):
        decode_order(body, "a")


@given(json_values)
def test_arbitrary_json_is_not_an_order(value: Any) -> None:
    with pytest.raises(InvalidDocument):
        decode_order(encoded(value), "a")


def survives(body: bytes) -> Order | None:
    """Decode a document. An accepted document can be stored."""
    try:
        order = decode_order(body, "a")
    except InvalidDocument:
        return None
    written = [order.status, order.currency, order.customer_id or "", order.country or ""]
    for item in order.lines:
        assert item.unit_price.is_finite()
        written += [item.sku, item.description or ""]
    assert "\0" not in "".join(written)
    "".join(written).encode()
    assert order.total.is_finite()
    order.lines_json()
    order.attributes_json()
    for moment in (order.placed_at, order.updated_at or order.placed_at):
        moment.astimezone(UTC)
    return order


@given(
    field=st.sampled_from(
        ["id", "status", "currency", "placed_at", "updated_at", "customer_id", "country", "lines", "attributes"]
    ),
    value=json_values,
)
def test_a_document_with_one_corrupted_field_is_either_storable_or_invalid(field: str, value: Any) -> None:
    survives(encoded(document(**{field: value})))


@given(
    field=st.sampled_from(["sku", "quantity", "unit_price", "description"]),
    value=json_values | st.decimals().map(str) | st.text("0123456789eE+-._ ", max_size=12),
)
@example(field="unit_price", value="1e99999999999999999999")
@example(field="unit_price", value="sNaN123")
@example(field="quantity", value=2**53 + 1)
def test_a_document_with_one_corrupted_line_is_either_storable_or_invalid(field: str, value: Any) -> None:
    survives(encoded(document(lines=[line(), line(**{field: value})])))


@given(moment=st.datetimes(timezones=offsets))
def test_any_datetime_is_either_kept_or_invalid(moment: datetime) -> None:
    order = survives(encoded(document(placed_at=moment.isoformat())))

    assert order is None or order.placed_at == moment


@pytest.mark.parametrize("field", ["id", "status", "currency", "placed_at", "lines"])
def test_a_missing_field_is_named(field: str) -> None:
    body = document()
    del body[field]

    with pytest.raises(InvalidDocument, match=field):
        decode_order(encoded(body), "a")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (document(id="b"), r"another order - at `\$\.id`"),
        (document(status=1), r"\$\.status"),
        (document(currency=None), r"\$\.currency"),
        (document(placed_at="2010-12-01T08:26:00"), r"\$\.placed_at"),  # no zone
        (document(placed_at="2010-12-01"), r"\$\.placed_at"),
        (document(placed_at=1291191960), r"\$\.placed_at"),
        (document(placed_at="0001-06-01T00:00:00Z"), r"\$\.placed_at"),
        (document(placed_at="9999-06-01T00:00:00Z"), r"\$\.placed_at"),
        (document(updated_at="9999-12-31T23:59:59.999999-23:59"), r"\$\.updated_at"),
        (document(lines={}), r"\$\.lines"),
        (document(lines=[line(), line(quantity="one")]), r"\$\.lines\[1\]\.quantity"),
        (document(lines=[line(), line(quantity="1_0")]), r"\$\.lines\[1\]\.quantity"),
        (document(lines=[line(quantity="NaN")]), r"\$\.lines\[0\]\.quantity"),
        (document(lines=[line(quantity="1e31")]), r"\$\.lines\[0\]\.quantity"),
        (document(lines=[line(quantity=True)]), r"\$\.lines\[0\]\.quantity"),
        (document(lines=[line(quantity=2**53 + 1)]), r"\$\.lines\[0\]\.quantity"),
        (document(lines=[line(quantity=10**4000)]), r"\$\.lines\[0\]\.quantity"),
        (document(lines=[line(unit_price="ten")]), r"\$\.lines\[0\]\.unit_price"),
        (document(lines=[line(unit_price=None)]), r"\$\.lines\[0\]\.unit_price"),
        (document(lines=[line(), line(), line(unit_price="NaN")]), r"\$\.lines\[2\]\.unit_price"),
        (document(lines=[line(unit_price="-Infinity")]), r"\$\.lines\[0\]\.unit_price"),
        (document(lines=[line(unit_price="1e31")]), r"\$\.lines\[0\]\.unit_price"),
        (document(lines=[line(unit_price="0e999999999")]), r"\$\.lines\[0\]\.unit_price"),
        (document(lines=[line(unit_price="1e999999999999999999999")]), r"\$\.lines\[0\]\.unit_price"),
        (document(lines=[line(unit_price="1" * 100_000)]), r"\$\.lines\[0\]\.unit_price"),
        (document(lines=[line(unit_price="1e30"), line(unit_price="1e-30")]), r"\$\.lines"),
        (document(lines=[line(unit_price="1." + "0" * 20_000, quantity=0)]), r"\$\.lines"),
        (document(lines=[line(sku=None)]), r"\$\.lines\[0\]\.sku"),
        (document(lines=[line(description="a\0b")]), "NUL"),
        (document(lines=[line(sku="\0")]), "NUL"),
        (document(country="\0"), "NUL"),
        (document(attributes={"a": ["\0"]}), "NUL"),
        (document(attributes=["a"]), r"\$\.attributes"),
        (document(status="\ud800"), "JSON"),
        (document(status="\udc00x"), "JSON"),
    ],
)
def test_the_error_names_the_place_in_the_document(body: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidDocument, match=where):
        decode_order(encoded(body), "a")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xef\xbb\xbf" + encoded(document()),
        json.dumps(document()).encode("utf-16"),
        encoded(document()) + b"{}",
        encoded(document())[:-1],
        encoded(document()).replace(b'"placed"', b"'placed'"),
        encoded(document()).replace(b'"placed"', b'"pla\x00ced"'),
        encoded(document()).replace(b'"placed"', b'"\xff\xfe"'),
        encoded(document()).replace(b'"placed"', b'"\xed\xa0\x80"'),
        priced("NaN"),
        priced("-Infinity"),
        priced("1e99999999999999999999"),
    ],
    ids=str,
)
def test_invalid_json_is_not_an_order(body: bytes) -> None:
    with pytest.raises(InvalidDocument):
        decode_order(body, "a")


# Python 3.14 decodes as many levels as the stack has room for.
_DEEP = 500_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * _DEEP,
        b'{"a":' * _DEEP,
        encoded(document(note=0))[:-2] + b"[" * _DEEP + b"]" * _DEEP + b"}",
        encoded(document(note=0))[:-2] + b'{"a":' * _DEEP + b"0" + b"}" * _DEEP + b"}",
        encoded(document(lines=[line(note=0)]))[:-4] + b"[" * _DEEP,
    ],
    ids=["arrays", "objects", "arrays in an unknown field", "objects in an unknown field", "in a line"],
)
def test_endless_nesting_is_not_an_order(body: bytes) -> None:
    with pytest.raises(InvalidDocument):
        decode_order(body, "a")


def test_the_last_of_duplicate_names_is_used() -> None:
    body = encoded(document()).replace(b'"status": "placed"', b'"status": "placed", "status": "paid"')

    assert decode_order(body, "a").status == "paid"


def test_unknown_fields_are_ignored() -> None:
    body = encoded(document(extra={"a": [1, None]}, lines=[line(extra=1)]))

    assert decode_order(body, "a") == decode_order(encoded(document(lines=[line()])), "a")


@pytest.mark.parametrize(
    "changes",
    [
        *({name: SECRET} for name in ("id", "placed_at", "updated_at", "lines")),
        *({"lines": [line(**{name: SECRET})]} for name in ("quantity", "unit_price")),
    ],
    ids=str,
)
def test_the_error_does_not_quote_the_document(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidDocument) as refused:
        decode_order(encoded(document(**changes)), "a")

    assert SECRET not in str(refused.value)


def test_every_prefix_of_a_document_is_truncated() -> None:
    whole = encoded(document(status="plåced", lines=[line(quantity=-12), line(unit_price=-1.5e-7)], more=[True, None]))
    decode_order(whole, "a")

    for length in range(len(whole)):
        with pytest.raises(TruncatedDocument):
            decode_order(whole[:length], "a")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b"{]", b"\xff", b'{"id":"a"} x', b'{{"id":"a"}'])
def test_other_content_does_not_count_as_truncated(body: bytes) -> None:
    with pytest.raises(InvalidDocument) as error:
        decode_order(body, "a")

    assert not isinstance(error.value, TruncatedDocument)
