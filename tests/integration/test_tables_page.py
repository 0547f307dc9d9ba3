"""docs/reference/tables.md describes the tables that `ingest migrate` creates."""

import re
from pathlib import Path

import pytest
from support import connected

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
WHERE table_schema = 'public'
"""
_TYPES = {"timestamp with time zone": "timestamptz"}


async def test_the_page_has_each_column_with_its_type(dsn: str) -> None:
    async with connected(dsn) as connection:
        columns = await connection.fetch(_COLUMNS)

    # PostgreSQL does not record whether a column of a view may be null.
    assert described() == {
        (table, column, _TYPES.get(kind, kind), table == "order_lines" or nullable == "YES")
        for table, column, kind, nullable in columns
    }


def described() -> set[tuple[str, str, str, bool]]:
    """The table, name and type of each column on the page, and whether it may be null."""
    page = (REFERENCE / "tables.md").read_text("utf-8")
    return {
        (title, column, kind.removesuffix(" or null"), title == "order_lines" or kind.endswith(" or null"))
        for title, section in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        for column, kind in re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE)
    }


@pytest.mark.parametrize("page", ["tables.md", "mapping.md"])
async def test_an_example_in_sql_runs(page: str, dsn: str) -> None:
    (block,) = re.findall(r"^```sql\n(.*?)^```", (REFERENCE / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    async with connected(dsn) as connection:
        assert await connection.fetch(block) == []
