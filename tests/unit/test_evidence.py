"""The comparison of load tests with the published page finds figures that differ, and only those."""

from rehearsals.evidence import PAGE, differences, sections

PUBLISHED = """
| server     | operation | requests/s | p99.9 | errors |
| ---------- | --------- | ---------: | ----: | -----: |
| ingest api | GET       |      1,000 |  10.0 |      0 |
| ingest api | PUT       |        500 |   0.2 |      0 |
"""


def test_figures_within_the_share_are_reproduced() -> None:
    again = PUBLISHED.replace("1,000", "1,290").replace("0.2", "0.4")

    assert not list(differences(PUBLISHED, again, 0.3))


def test_a_figure_outside_of_the_share_is_named_with_its_row_and_column() -> None:
    again = PUBLISHED.replace("1,000", "699").replace("0 |\n| ingest api | PUT", "9 |\n| ingest api | PUT")

    assert list(differences(PUBLISHED, again, 0.3)) == [
        "ingest api, GET: requests/s: 1,000 on the page, 699 now",
        "ingest api, GET: errors: 0 on the page, 9 now",
    ]


def test_other_rows_are_a_difference() -> None:
    again = PUBLISHED.replace("PUT", "POST")

    assert list(differences(PUBLISHED, again, 0.3)) == ["the tables have other rows or columns"]


def test_new_tables_replace_those_of_their_section_only() -> None:
    page = "".join(
        f"## {name}\n\n```sh\ningest bench {name}\n```\n\n<!-- measured -->\n<!-- end -->\n\n"
        for name in ("http", "select")
    )

    one, other = sections(page)
    written = one.replaced(page, PUBLISHED)

    assert [section.text for section in sections(written)] == [PUBLISHED, other.text]


def test_each_section_of_the_page_has_its_command() -> None:
    page = PAGE.read_text()

    assert len(sections(page)) == page.count("\n## ") > 0
