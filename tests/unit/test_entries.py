"""Between a stream entry and a delivery, invalid fields of a foreign producer are read as missing."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.queue.layout.entries import flat, pairs, to_delivery

ENTRY = b"1700000000123-7"


def test_the_id_alone_makes_a_delivery() -> None:
    delivery = to_delivery("orders", ENTRY, {b"order_id": b"a1"}, 1)

    assert (delivery.entry.id, delivery.order_id, delivery.attempt, delivery.count) == ("1700000000123-7", "a1", 1, 1)
    assert delivery.enqueued_at == 1_700_000_000.123
    assert delivery.document is None


def test_all_fields_are_read() -> None:
    fields = {b"order_id": b"a1", b"enqueued_at": b"1600000000500", b"attempt": b"4", b"document": b"{}", b"x": b"\xff"}

    delivery = to_delivery("orders", ENTRY, fields, 9)

    assert (delivery.enqueued_at, delivery.attempt, delivery.count) == (1_600_000_000.5, 4, 9)
    assert delivery.document == b"{}"
    assert delivery.fields == fields


@pytest.mark.parametrize("raw", [b"", b" a", b"a ", b"..", b"a" * 129, b"\xff", b"\xed\xa0\x80", b"a\n", b"a\0"])
def test_a_wrong_id_is_no_id(raw: bytes) -> None:
    assert to_delivery("orders", ENTRY, {b"order_id": raw}, 1).order_id is None


@pytest.mark.parametrize(
    "raw", [b"", b"0", b"soon", b"-1", b"1.5", b"1e3", b"9" * 14, b"9" * 5000, b"\xff", "٣".encode()]
)
def test_a_wrong_time_is_replaced_by_that_of_the_entry(raw: bytes) -> None:
    assert to_delivery("orders", ENTRY, {b"enqueued_at": raw}, 1).enqueued_at == 1_700_000_000.123


@pytest.mark.parametrize("milliseconds", [b"1700000000123000000", b"18446744073709551615"])
@pytest.mark.parametrize("others", [{}, {b"document": b"{}"}])
def test_the_time_of_an_entry_is_one_that_has_a_date(milliseconds: bytes, others: dict[bytes, bytes]) -> None:
    delivery = to_delivery("orders", milliseconds + b"-7", {b"order_id": b"a1"} | others, 1)

    assert datetime.fromtimestamp(delivery.enqueued_at, UTC).year == 9998
    assert delivery.pushed_at().isoformat() == "9998-12-31T23:59:59.999007+00:00"


@pytest.mark.parametrize("raw", [b"", b"0", b"first", b"-1", b"1.5", b"9" * 7, b"9" * 5000, b"\xff"])
def test_a_wrong_attempt_is_the_first(raw: bytes) -> None:
    assert to_delivery("orders", ENTRY, {b"attempt": raw}, 1).attempt == 1


@given(st.dictionaries(st.sampled_from([b"order_id", b"enqueued_at", b"attempt", b"document", b"x"]), st.binary()))
def test_no_entry_is_an_error(fields: dict[bytes, bytes]) -> None:
    delivery = to_delivery("orders", ENTRY, fields, 1)

    assert delivery.attempt >= 1
    assert 0 < delivery.enqueued_at < 10**10


@given(st.binary(max_size=140) | st.from_regex(rb"[A-Za-z0-9._:-]{1,129}", fullmatch=True))
def test_an_entry_with_no_other_field_is_read_as_one_with_others(raw: bytes) -> None:
    alone = to_delivery("orders", ENTRY, {b"order_id": raw}, 2)
    among_others = to_delivery("orders", ENTRY, {b"order_id": raw, b"x": b""}, 2)

    assert alone == msgspec.structs.replace(among_others, fields={b"order_id": raw})


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_name_without_a_value_is_an_error(count: int) -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        pairs([b"x"] * count)


@given(st.dictionaries(st.binary(), st.binary()))
def test_fields_survive_being_sent_flat(fields: dict[bytes, bytes]) -> None:
    assert pairs(flat(fields)) == fields
