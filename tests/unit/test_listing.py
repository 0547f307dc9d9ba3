"""Lists of commands have one form: a table or JSON lines, and a message about what they leave out."""

import pytest

from ingest.cli.listing import Listing

FRUIT: Listing[tuple[str, str]] = Listing(
    {"name": lambda item: item[1]},
    names=1,
    facts=1,
    nothing="no fruit",
    as_json=lambda item: f'"{item[1]}"',
    source=lambda item: item[0],
)
TWO = [("", "apple"), ("", "pear")]


@pytest.mark.parametrize(("as_json", "shown"), [(False, "name\napple\n"), (True, '"apple"\n')])
def test_a_list_that_continues_says_so(*, as_json: bool, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    FRUIT.show(TWO, as_json=as_json, limit=1)

    assert capfd.readouterr() == (shown, "there are more than these 1: --limit lists more\n")


def test_a_whole_list_has_no_message(capfd: pytest.CaptureFixture[str]) -> None:
    FRUIT.show(TWO, as_json=True, limit=2)

    assert capfd.readouterr() == ('"apple"\n"pear"\n', "")


def test_an_empty_list_is_named_unless_parts_are_missing(capfd: pytest.CaptureFixture[str]) -> None:
    FRUIT.show([], as_json=False)
    FRUIT.show([], as_json=False, is_complete=False)
    FRUIT.show([], as_json=True)

    assert capfd.readouterr() == ("", "no fruit\n")


def test_a_table_begins_with_the_source_of_named_sources(capfd: pytest.CaptureFixture[str]) -> None:
    FRUIT.show([("shop", "apple")], as_json=False)

    assert capfd.readouterr().out == "source  name\nshop    apple\n"
