"""Order IDs: one rule, one error, and one way into a URL."""

import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from odd_ids import NO_IDS, ODD_IDS, order_ids

from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.domain.orders.order_id import SCHEMA, SEPARATOR, quoted_ids


def is_order_id(text: str) -> bool:
    return (
        1 <= len(text) <= 128
        and all(letter.isprintable() and letter != "\ufffd" for letter in text)
        and text.strip() == text
        and not any(part and set(part) == {"."} for part in re.split(r"[/\\]", text))
        and len(text.encode()) <= 255
    )


@pytest.mark.parametrize("order_id", ODD_IDS)
def test_ids_of_real_systems_are_ids(order_id: str) -> None:
    assert parse_order_id(order_id) == order_id


@given(order_ids)
def test_an_order_id_is_returned_unchanged(order_id: str) -> None:
    assert parse_order_id(order_id) == order_id


@pytest.mark.parametrize("text", NO_IDS)
def test_texts_that_cannot_be_shown_or_named_in_a_url_are_refused(text: str) -> None:
    with pytest.raises(InvalidOrderId):
        parse_order_id(text)


@given(st.text() | st.text(" .aé\n/\\%\u2028\u202e", max_size=140))
@example("a" * 129)
@example("é" * 128)
def test_any_other_text_is_refused(text: str) -> None:
    if is_order_id(text):
        assert parse_order_id(text) == text
        return

    with pytest.raises(InvalidOrderId):
        parse_order_id(text)


@given(st.text(min_size=129, max_size=5_000))
def test_the_error_is_one_short_printable_line(text: str) -> None:
    with pytest.raises(InvalidOrderId) as refused:
        parse_order_id(text)

    message = str(refused.value)
    assert message.isprintable()
    assert len(message) < 1_000


@given(order_ids)
def test_in_a_url_an_id_is_one_segment_of_unreserved_characters(order_id: str) -> None:
    quoted = quoted_ids(order_id)

    assert re.fullmatch(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+", quoted)
    assert unquote(quoted, errors="strict") == order_id
    assert urlsplit(f"http://shop.example/orders/{quoted}?x=1").path == f"/orders/{quoted}"


@given(st.lists(order_ids, min_size=1, max_size=5))
def test_several_ids_are_divided_by_commas_that_are_in_none_of_them(ids: list[str]) -> None:
    quoted = quoted_ids(SEPARATOR.join(ids))

    assert [unquote(each) for each in quoted.split(",")] == ids


@given(order_ids)
def test_every_id_fits_the_schema_of_the_api(order_id: str) -> None:
    assert SCHEMA["minLength"] <= len(order_id) <= SCHEMA["maxLength"]
    assert re.search(str(SCHEMA["pattern"]), order_id)
