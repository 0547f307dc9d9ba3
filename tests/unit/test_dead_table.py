"""The layout of the table of dead letters, from the widest terminal to the narrowest."""

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ingest.cli.queues.entry_lists import DEAD_LETTERS
from ingest.cli.terminal.width import Table


def lines_of(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    table = Table([*DEAD_LETTERS.columns], DEAD_LETTERS.names, DEAD_LETTERS.facts)
    return table.lines(rows, list(map(DEAD_LETTERS.below, rows)), width)


ROW = ("1763629200123-0", "536365", "not_found", "3", "2 h ago", "", "HTTP 404")
OTHER = ("1763629200124-0", "1", "attempts_exhausted", "10", "3 d ago", "2, 1 d ago", "HTTP 500 " * 12)


def test_on_a_wide_terminal_each_dead_letter_is_one_line() -> None:
    header, one, other = lines_of([ROW, OTHER], 200)

    assert header.split() == ["id", "order", "reason", "attempts", "dead", "since", "replays", "error"]
    assert one.split() == [*ROW[:4], "2", "h", "ago", "HTTP", "404"]
    assert other.endswith("2, 1 d ago  " + OTHER[-1].rstrip())


def test_on_a_narrower_terminal_the_error_is_below() -> None:
    header, one, first, _, second = lines_of([ROW, OTHER], 80)

    assert header.split() == ["id", "order", "reason", "attempts", "dead", "since"]
    assert one.endswith("2 h ago")
    assert first == "  HTTP 404"
    assert second.startswith("  replayed 2, 1 d ago: HTTP 500 HTTP 500")
    assert second.endswith("…")
    assert len(second) <= 80


def test_a_long_order_id_is_not_broken() -> None:
    order_id = "x" * 64

    lines = list(lines_of([(ROW[0], order_id, *ROW[2:])], 60))

    assert lines == [f"{ROW[0]}  {order_id}", "  not_found  3  2 h ago", "  HTTP 404"]


cells = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=30)


@given(rows=st.lists(st.tuples(*[cells] * 7), min_size=1, max_size=5), width=st.integers(20, 300))
def test_no_line_is_wider_than_the_terminal_unless_its_ids_are(rows: list[tuple[str, ...]], width: int) -> None:
    longest = max(cell_len(f"{row[0]}  {row[1]}") for row in rows)
    facts = sum(max(cell_len(row[column]) for row in rows) + 2 for column in (2, 3, 4))

    assert max(map(cell_len, lines_of(rows, width))) <= max(width, longest, facts)
