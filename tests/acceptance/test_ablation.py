"""`make ablation` distinguishes a safeguard that tests notice from one that they do not."""

from collections.abc import Iterator

import pytest
from ablation.__main__ import verdict_of
from ablation.copies import Copy
from ablation.safeguards import ROOT, Safeguard

FILE = "ingest/domain/exponential_pause.py"
TEST = "tests/unit/test_exponential_pause.py"
RETURN = "    return "


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    with Copy.made() as copy:
        yield copy


def removed(before: str, after: str) -> Safeguard:
    return Safeguard(protects="A promise.", file=FILE, before=before, after=after, tests=(TEST,))


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (RETURN, "    return 1.0 + ", "noticed by tests/unit/test_exponential_pause.py::"),
        (RETURN, "    return 0.0 + ", "NOT NOTICED"),
        (RETURN, "    return unknown + ", "THE CHANGE DOES NOT RUN"),
        (RETURN, "    return (", "THE CHANGE DOES NOT RUN"),
        ("a text that is not in the file", "", "DOES NOT APPLY"),
    ],
)
def test_the_verdict_about_a_safeguard_is_that_of_its_tests(copy: Copy, before: str, after: str, verdict: str) -> None:
    text = (ROOT / FILE).read_text("utf-8")

    found = verdict_of(copy, removed(before, after))

    assert found.startswith(verdict)
    assert (ROOT / FILE).read_text("utf-8") == (copy.root / FILE).read_text("utf-8") == text
