"""JSON texts are cleaned of what cannot be decoded or stored, and of nothing else."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.domain.orders.clean_json import clean_json


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (rb'{"a":"x\ud83d y"}', rb'{"a":"x\ufffd y"}'),
        (rb'{"a":"x\uD83D"}', rb'{"a":"x\ufffd"}'),
        (rb'{"a":"\ude00"}', rb'{"a":"\ufffd"}'),
        (rb'{"a":"\ude00\ud83d"}', rb'{"a":"\ufffd\ufffd"}'),
        (rb'{"a":"\ud83d\ud83d\ude00"}', rb'{"a":"\ufffd\ud83d\ude00"}'),
        (rb'{"a":"a\u0000b"}', rb'{"a":"a\ufffdb"}'),
        (rb'{"\u0000":1}', rb'{"\ufffd":1}'),
        (b'{"a":"\xed\xa0\xbd"}', rb'{"a":"\ufffd"}'),
        (b'\xef\xbb\xbf{"a":1}', b'{"a":1}'),
        (b'\xef\xbb\xbf{"a":"\\u0000"}', rb'{"a":"\ufffd"}'),
    ],
)
def test_what_cannot_be_stored_is_replaced(text: bytes, clean: bytes) -> None:
    assert clean_json(text) == clean
    msgspec.json.decode(clean)


@pytest.mark.parametrize(
    "text",
    [
        rb'{"a":"\ud83d\ude00"}',
        rb'{"a":"\\ud83d"}',
        rb'{"a":"\\\\u0000"}',
        rb'{"a":"\\u0000"}',
        rb'{"a":"\"\n\u00e9"}',
        '{"a":"한글 힣"}'.encode(),
        b'{"a":"\\',
        b"",
    ],
)
def test_everything_else_stays_the_same_object(text: bytes) -> None:
    assert clean_json(text) is text


@given(st.dictionaries(st.text(st.characters(codec=None)), st.text(st.characters(codec=None))))
def test_any_document_is_decodable_and_storable_afterwards(document: dict[str, str]) -> None:
    decoded = msgspec.json.decode(clean_json(json.dumps(document).encode()), type=dict[str, str])

    wanted = {_storable(name): _storable(value) for name, value in document.items()}
    assert decoded == wanted


def _storable(text: str) -> str:
    # What JSON makes of neighbouring halves is a pair.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return "".join("\ufffd" if letter == "\0" or "\ud800" <= letter <= "\udfff" else letter for letter in joined)
