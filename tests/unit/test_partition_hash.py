"""The partition of an order ID is documented for other languages, and never changes."""

import re
from pathlib import Path

import pytest

from ingest.domain.partitions import partition_of

PAGE = Path(__file__).parents[2] / "docs" / "enqueue" / "command-line-and-redis.md"
_ROW = re.compile(r"^\| `([^`]+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
ROWS = _ROW.findall(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_documented_partitions_are_those_of_a_producer(row: tuple[str, ...]) -> None:
    order_id, crc, *partitions = row

    assert [partition_of(order_id, number) for number in (2, 4, 6, 16)] == [int(each) for each in partitions]
    assert partition_of(order_id, 1 << 32) == int(crc)


def test_the_page_has_examples() -> None:
    assert len(ROWS) == 6
