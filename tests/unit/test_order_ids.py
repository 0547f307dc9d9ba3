"""Order IDs: one alphabet, one length, one error."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.domain.orders.order import InvalidOrderId, parse_order_id

FIRST = string.ascii_letters + string.digits
REST = FIRST + "._:-"

order_ids = st.builds(str.__add__, st.sampled_from(FIRST), st.text(REST, max_size=63))


def is_order_id(text: str) -> bool:
    return 1 <= len(text) <= 64 and text[0] in FIRST and all(letter in REST for letter in text)


@given(order_ids)
def test_an_order_id_is_returned_unchanged(order_id: str) -> None:
    assert parse_order_id(order_id) == order_id


@given(st.text() | st.text(REST + " \n/%", max_size=70))
@example("a\n")
@example("")
@example("-a")
@example("a" * 65)
@example("٣")  # a digit, but not of ASCII
@example("é")
@example("a\0")
@example("\ud800")
def test_any_other_text_is_refused(text: str) -> None:
    if is_order_id(text):
        assert parse_order_id(text) == text
        return

    with pytest.raises(InvalidOrderId):
        parse_order_id(text)


@given(st.text(min_size=65, max_size=5_000))
def test_the_error_is_one_short_printable_line(text: str) -> None:
    with pytest.raises(InvalidOrderId) as refused:
        parse_order_id(text)

    message = str(refused.value)
    assert message.isprintable()
    assert len(message) < 1_000
