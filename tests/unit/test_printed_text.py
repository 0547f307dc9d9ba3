"""Text from outside is printed so that no terminal takes it for commands."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingest.cli.terminal.text import printable_json

texts = st.text() | st.text('a"\\/\n\x1b\x7f\x85\x9b\u2028\u202e\u2066\U000e0001')
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(value=values)
def test_json_is_printable_and_the_same(value: Any) -> None:
    printed = printable_json(json.dumps(value, ensure_ascii=False))

    assert printed.isprintable()
    assert json.loads(printed) == value


def test_text_of_any_language_is_not_escaped() -> None:
    document = json.dumps({"name": "Zoë Łukasz 王 ☕ 😀"}, ensure_ascii=False)

    assert printable_json(document) == document
    assert printable_json(document.replace("Zoë", "Zo\x9b")) == document.replace("Zoë", "Zo\\u009b")
