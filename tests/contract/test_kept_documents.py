"""What counts as storable is what PostgreSQL's `jsonb` takes."""

import json
from collections.abc import AsyncIterator

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import connected

from ingest.domain.orders.clean_json import clean_json, storable_document


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    async with connected(dsn) as connection:
        yield connection


async def accepts(sql: asyncpg.Connection, document: bytes) -> bool:
    try:
        await sql.fetchval("SELECT $1::text::jsonb", document.decode())
    except (asyncpg.DataError, asyncpg.StatementTooComplexError, UnicodeDecodeError):
        return False
    return True


NOT_STORABLE = {
    "a NUL": rb'{"a": "x\u0000y"}',
    "a NUL in a name": rb'{"x\u0000y": 1}',
    "a NUL after a backslash": rb'{"a": "\\\u0000"}',
    "half of a surrogate pair": rb'{"a": "\ud800"}',
    "the other half": rb'{"a": "\udc00"}',
    "not UTF-8": b'{"a": "\xff"}',
    "a tiny number": b"1e-99999",
    "digits after the point": b"0." + b"0" * 20_000 + b"1",
    "digits before the point": b"1" * 140_000,
    "a control character": b'{"a": "x\x01y"}',
    "too deep": b"[" * 20_000 + b"]" * 20_000,
    "too deep, with brackets in strings": b'["]\\"]",' + b'{"]":' * 20_000 + b"0" + b"}" * 20_000 + b"]",
    "no JSON": b"order",
    "nothing": b"",
}


@pytest.mark.parametrize("document", NOT_STORABLE.values(), ids=NOT_STORABLE)
async def test_what_postgres_refuses_is_not_storable(sql: asyncpg.Connection, document: bytes) -> None:
    assert storable_document(document) is None
    assert not await accepts(sql, document)


STORABLE = {
    "an order": b'{"id": "a", "lines": [{"quantity": 1, "price": 2.50}], "note": null}',
    "an escaped backslash before u0000": rb'{"a": "\\u0000"}',
    "an escaped emoji": rb'{"a": "\ud83d\ude00"}',
    "a large number": b"1.5e300",
    "a small number": b"1e-300",
    "many digits": b"1" * 60 + b"." + b"1" * 60,
    "a checksum": b'{"sha": "9e-1234567890"}'.replace(b"-", b""),
    "deep": b"[" * 500 + b"]" * 500,
    "many lists": b"[" + b"[[]]," * 2_000 + b"0]",
    "brackets in strings": b'["' + b'[\\"[' * 2_000 + b'"]',
    "a name twice": b'{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("document", STORABLE.values(), ids=STORABLE)
async def test_what_is_storable_is_accepted(sql: asyncpg.Connection, document: bytes) -> None:
    assert storable_document(document) == document
    assert await accepts(sql, document)


def test_a_byte_order_mark_is_left_out() -> None:
    assert storable_document(clean_json(b'\xef\xbb\xbf{"a":1}')) == b'{"a":1}'


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(document=st.lists(values, min_size=1), is_ascii=st.booleans())
async def test_whatever_is_storable_is_accepted(sql: asyncpg.Connection, document: object, is_ascii: bool) -> None:  # noqa: FBT001
    body = json.dumps(document, ensure_ascii=is_ascii).encode(errors="surrogatepass")

    kept = storable_document(body)

    assert kept is None or await accepts(sql, kept)
