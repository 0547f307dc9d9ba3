"""Array arguments arrive as they are, whatever passes asyncpg makes over them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from ingest.store.orders.flat_array import FlatArray, array


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_installed_asyncpg_is_one_whose_passes_are_known() -> None:
    assert array is FlatArray


@pytest.mark.parametrize(
    ("sql_type", "values"),
    [
        ("text", ["a", None, "", "{x}", 'a "quoted" \\ one']),
        ("integer", [1, None]),
        ("timestamptz", [MOMENT]),
        ("text", []),
    ],
)
async def test_elements_arrive_as_they_are_on_every_execution(sql: Any, sql_type: str, values: list[Any]) -> None:
    for _ in range(3):
        assert await sql.fetchval(f"SELECT $1::{sql_type}[]", FlatArray(values)) == values


async def test_the_same_argument_can_be_sent_again(sql: Any) -> None:
    argument = FlatArray(["a", "b"])

    assert [await sql.fetchval("SELECT $1::text[]", argument) for _ in range(2)] == [["a", "b"]] * 2


async def test_passes_that_are_not_as_expected_are_refused_by_postgresql(sql: Any) -> None:
    argument = FlatArray(["a", "b"])
    list(argument)

    with pytest.raises(asyncpg.PostgresError):
        await sql.fetchval("SELECT $1::text[]", argument)
