"""`ingest enqueue` and malformed CSV files. No line may be lost without an error."""

import csv
import json
from pathlib import Path

import pytest
from acceptance.queued import Queued
from support import Cli


def table(rows: int = 1_000, **changed: str) -> str:
    """A CSV file with an order on each line after the header. `line_302='…'` replaces a line."""
    lines = ["id,note,country", *(f"o-{number},a note,DE" for number in range(2, rows + 2))]
    for name, text in changed.items():
        lines[int(name.removeprefix("line_")) - 1] = text
    return "\n".join(lines) + "\n"


def ids(first: int, last: int) -> list[str]:
    """The orders on these lines of `table`."""
    return [f"o-{number}" for number in range(first, last + 1)]


def run(cli: Cli, tmp_path: Path, text: str | bytes, *options: str) -> tuple[int, str, str]:
    path = tmp_path / "orders.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = cli.run("enqueue", "--file", str(path), "--column", "id", *options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("changed", "opened"),
    [
        ({"line_302": 'o-302,"a note,DE'}, 302),
        ({"line_302": '"o-302,a note,DE'}, 302),
        ({"line_302": 'o-302,a note,"DE'}, 302),
        ({"line_1001": 'o-1001,a note,"DE'}, 1001),
        # A later quote closes it, and the result makes no sense.
        ({"line_302": 'o-302,"a note,DE', "line_900": 'o-900,"Müller, Köln",DE'}, 302),
        ({"line_302": 'o-302,"a note,DE', "line_305": 'o-305,", and more",DE'}, 302),
        ({"line_302": 'o-302,"a note,DE', "line_305": 'o-305,17"'}, 302),
        # A later quote closes it, the result makes sense, and the lines in between look like orders.
        ({"line_302": 'o-302,"Monitor 17,DE', "line_320": 'o-320,Monitor 17",DE'}, 302),
        # A field with several lines, well closed, is before it.
        ({"line_302": 'o-302,"two', "line_303": 'lines","DE'}, 303),
    ],
)  # fmt: skip
def test_an_unclosed_quote_is_reported_with_its_line_and_the_accepted_orders(
    cli: Cli, queued: Queued, tmp_path: Path, changed: dict[str, str], opened: int
) -> None:
    first = int(min(changed, key=lambda name: int(name.removeprefix("line_"))).removeprefix("line_"))

    code, stdout, stderr = run(cli, tmp_path, table(**changed))

    assert code == 1
    assert stdout.startswith(f"{first - 2:,} accepted")
    assert stderr.count("\n") == 1, stderr
    assert f"line {opened} of {tmp_path}/orders.csv: " in stderr
    assert "quote" in stderr
    assert f"{first - 2:,} " in stderr
    assert queued() == ids(2, first - 1)


def test_json_output_reports_an_unclosed_quote(cli: Cli, tmp_path: Path) -> None:
    code, stdout, _ = run(cli, tmp_path, table(line_302='o-302,"a note,DE'), "--json")

    result = json.loads(stdout)
    assert (code, result["accepted"], result["invalid"]) == (1, 300, 0)
    assert result["error"].startswith("line 302 of ")


def test_an_unclosed_quote_in_a_large_file_is_found_without_reading_all_of_it(cli: Cli, queued: Queued) -> None:
    text = "id,note\n" + 'a,"note\n' + "b,note\n" * 2_000_000

    done = cli.run("enqueue", "-", "--format", "csv", "--column", "id", stdin=text)

    assert done.returncode == 1
    assert "line 2 of stdin: " in done.stderr
    assert queued() == []


def test_a_malformed_line_is_reported_and_the_others_are_enqueued(cli: Cli, queued: Queued, tmp_path: Path) -> None:
    code, stdout, stderr = run(cli, tmp_path, table(9, line_5='o-5,"17" monitor",DE', line_7='o-7,""x,DE'))

    assert code == 1
    assert stdout.startswith("7 accepted, 2 invalid")
    assert [line.partition(": ")[0].rpartition(" ")[2] for line in stderr.splitlines()] == ["5", "7"]
    assert queued() == [*ids(2, 4), "o-6", *ids(8, 10)]


def test_a_line_whose_id_may_stand_in_another_column_is_reported(cli: Cli, queued: Queued, tmp_path: Path) -> None:
    code, stdout, stderr = run(cli, tmp_path, "name,id\nSmith,a\nSmith, John,b\nJones,c,\n")

    assert code == 1
    assert stdout.startswith("2 accepted, 1 invalid")
    assert "orders.csv, line 3: " in stderr
    assert "3 values in 2 columns" in stderr
    assert queued() == ["a", "c"]


def test_more_values_than_columns_behind_an_id_in_the_first_column_do_no_harm(
    cli: Cli, queued: Queued, tmp_path: Path
) -> None:
    code, _, stderr = run(cli, tmp_path, "id,name\na,Smith, John\n")

    assert (code, stderr) == (0, "")
    assert queued() == ["a"]


def test_quoted_fields_of_many_lines_and_of_any_size_are_read(cli: Cli, queued: Queued, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        notes = ["x" * 900_000, "two\nlines", 'an "address"\nHauptstr. 1, Köln\nGermany\n\n', "a\r\nb", '"', "\n\n\n\n\n", "nul\0", ",\n,\n,\n,\n"]  # fmt: skip
        csv.writer(file).writerows([["note", "id"], *([note, f"o-{number}"] for number, note in enumerate(notes))])

    done = cli.run("enqueue", "--file", str(path), "--column", "id")

    assert (done.returncode, done.stderr) == (0, "")
    assert queued() == [f"o-{number}" for number in range(len(notes))]


def test_an_id_with_a_nul_or_a_line_end_is_reported_with_the_line_where_it_ends(
    cli: Cli, queued: Queued, tmp_path: Path
) -> None:
    code, stdout, stderr = run(cli, tmp_path, 'id,note\na,x\n"b\nb",x\nc\0,x\nd,x\n')

    assert code == 1
    assert stdout.startswith("2 accepted, 2 invalid")
    assert [line.partition(": ")[0].rpartition(" ")[2] for line in stderr.splitlines()] == ["4", "5"]
    assert queued() == ["a", "d"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 200_000 + ",id2\na,b\n", "no column 'id'"),
        (",".join(f"column-{number}" for number in range(20_000)) + "\na,b\n", "no column 'id'"),
        ('"id,note\na,b\n', "line 1 of"),
        ("id,note\ra,b\rc,d\r", "line 1 of"),
        (b"id,gr\xf6\xdfe\na,b\n", "orders.csv: not UTF-8 text"),
        ("id,note\na,b\n".encode("utf-16"), "orders.csv: not UTF-8 text"),
        ("x" * 2_000_000 + "\na,b\n", "is longer than"),
    ],
    ids=["one large name", "many names", "a quote", "line ends of old", "Latin-1", "UTF-16", "a line without end"],
)
def test_an_unusable_header_is_one_short_line(
    cli: Cli, queued: Queued, tmp_path: Path, text: str | bytes, expected: str
) -> None:
    code, stdout, stderr = run(cli, tmp_path, text)

    assert (code, stdout, stderr.count("\n")) == (1, "", 1), stderr[:2000]
    assert stderr.startswith("ingest: ")
    assert expected in stderr
    assert len(stderr) < 1_000
    assert queued() == []
