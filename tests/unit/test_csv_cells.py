"""No cell of a CSV file starts a formula, whichever separator the spreadsheet of a country expects, and numbers stay numbers."""

import csv
import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.domain.printable import cell

SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"


@pytest.mark.parametrize("number", ["-12.50", "-0", "12", "-1E+3", "1.5e-7", Decimal("-12.50"), -3])
def test_a_number_stays_a_number(number: object) -> None:
    assert cell(number) == str(number)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, ""),
        ("=1+1", "'=1+1"),
        ("\uff0d1", "'\uff0d1"),
        ("-1-1", "'-1-1"),
        ("  @x", "'  @x"),
        ("a;=1;+2", "a;'=1;'+2"),
        ('a; "=1"', 'a;\' "=1"'),
        ("a\t=1", r"a\t=1"),
        ("a; b", "a; b"),
        ("a-1 = b", "a-1 = b"),
    ],
)
def test_a_sign_that_would_begin_a_formula_has_an_apostrophe(text: object, shown: str) -> None:
    assert cell(text) == shown


@given(st.lists(st.text(alphabet=SIGNS + ";\t\n\r\" ',a1\u3000"), min_size=1, max_size=3))
def test_no_separator_makes_a_formula_of_a_part_of_a_cell(texts: list[str]) -> None:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(cell, ["1", *texts]))

    for separator in ",;\t":
        for row in csv.reader(io.StringIO(line.getvalue()), delimiter=separator):
            for part in row:
                assert not part.strip(' "').startswith(tuple(SIGNS)) or part.lstrip("-").isdigit(), (separator, row)
