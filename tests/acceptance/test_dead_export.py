"""`ingest dead export` as a real process, and all of `ingest dead` where its output cannot be written."""

import csv
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from acceptance.dead_lettering import StoredDeadLetters, assert_one_line, lines
from dead_letter_entries import dead_fields
from support import Cli, eventually_sync

from ingest.domain.deliveries.delivery import DeadReason

# -- output ----------------------------------------------------------------------------------------------------


def test_export_writes_json_lines_oldest_first(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}", list(DeadReason)[number % 2]) for number in range(500))

    everything, some = cli.run("dead", "export"), cli.run("dead", "export", "--json", "--reason", "not_found")

    assert (everything.returncode, some.returncode, everything.stderr + some.stderr) == (0, 0, "")
    assert [found["order_id"] for found in lines(everything.stdout)] == [f"o-{number}" for number in range(500)]
    assert [found["order_id"] for found in lines(some.stdout)] == [f"o-{number}" for number in range(1, 500, 2)]


def test_a_hyphen_as_output_is_standard_output(cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path) -> None:
    dead_lettered.add(dead_fields("a"), dead_fields("b"))

    command = [sys.executable, "-m", "ingest", "dead", "export", "--output", "-"]
    done = subprocess.run(command, env=cli.env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert ([found["order_id"] for found in lines(done.stdout)], done.stderr) == (["a", "b"], "")
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert_one_line(cli.run("dead", "export", "--output", "-", "--force"), 2)


def test_an_export_with_a_rate_takes_its_time(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}") for number in range(30))
    begun = time.monotonic()

    done = cli.run("dead", "export", "--rate", "20")

    assert [found["order_id"] for found in lines(done.stdout)] == [f"o-{number}" for number in range(30)]
    assert time.monotonic() - begun >= 1.4


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
def test_an_interrupted_export_continues_after_its_last_complete_line(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path, file_format: str
) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}") for number in range(300))
    whole, path = tmp_path / "whole", tmp_path / "dead"
    assert cli.run("dead", "export", "--format", file_format, "--output", str(whole)).returncode == 0
    written = whole.read_bytes()
    private_file(Path(f"{path}.part"), written[: len(written) // 2])
    export = ("dead", "export", "--format", file_format, "--output", str(path))

    refused = cli.run(*export)
    done = cli.run(*export, "--resume")

    assert_one_line(refused, 1)
    assert "--resume" in refused.stderr
    assert (done.returncode, path.read_bytes()) == (0, written)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dead", "whole"]


def test_an_export_is_not_resumed_while_another_process_writes_it(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path
) -> None:
    dead_lettered.add(dead_fields("a"))
    path, part = tmp_path / "dead", tmp_path / "dead.part"
    private_file(part, b"")

    with part.open("w") as written:
        fcntl.flock(written, fcntl.LOCK_EX)
        refused = cli.run("dead", "export", "--output", str(path), "--resume")
        written.write("kept")

    assert_one_line(refused, 1)
    assert "another program is writing" in refused.stderr
    assert (part.read_text(), path.exists()) == ("kept", False)


@pytest.mark.parametrize("content", [b"\xff\n", b"[]\n", b'{"id": 5, "source": ""}\n', b"id,source\n"])
def test_a_file_that_is_no_export_is_not_resumed(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path, content: bytes
) -> None:
    dead_lettered.add(dead_fields("a"))
    part = tmp_path / "dead.part"
    private_file(part, content)

    refused = cli.run("dead", "export", "--output", str(tmp_path / "dead"), "--resume")

    assert_one_line(refused, 1)
    assert part.read_bytes() == content


@pytest.mark.parametrize("form", ["others may read it", "hard link", "symbolic link", "pipe"])
def test_a_part_that_another_user_may_have_put_there_is_neither_resumed_nor_proposed(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path, form: str
) -> None:
    dead_lettered.add(dead_fields("a"))
    path, part, other = tmp_path / "dead", tmp_path / "dead.part", tmp_path / "other"
    private_file(other, b"")
    match form:
        case "hard link":
            os.link(other, part)
        case "symbolic link":
            part.symlink_to(other)
        case "pipe":
            os.mkfifo(part, 0o600)
        case _:
            part.touch(0o644)

    resumed = cli.run("dead", "export", "--output", str(path), "--resume")
    begun = cli.run("dead", "export", "--output", str(path))
    forced = cli.run("dead", "export", "--output", str(path), "--force")

    for refused in (resumed, begun):
        assert_one_line(refused, 1)
        assert "continue it with --resume" not in refused.stderr
    assert (forced.returncode, other.read_bytes()) == (0, b"")
    assert (stat.S_IMODE(path.stat().st_mode), lines(path.read_text())[0]["order_id"]) == (0o600, "a")


def private_file(path: Path, content: bytes) -> None:
    """A file as an interrupted export of this user leaves it."""
    path.touch(0o600)
    path.write_bytes(content)


def test_a_killed_export_is_resumed(cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}") for number in range(30_000))
    path = tmp_path / "dead.jsonl"
    part = Path(f"{path}.part")

    process = cli.start("dead", "export", "--output", str(path))
    eventually_sync(lambda: part.exists() and part.stat().st_size > 0, within=30)
    process.kill()
    process.wait(timeout=30)
    done = cli.run("dead", "export", "--output", str(path), "--resume")

    assert done.returncode == 0
    assert [found["order_id"] for found in lines(path.read_text("utf-8"))] == [
        f"o-{number}" for number in range(30_000)
    ]


def test_export_writes_csv_with_a_header_into_a_file(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path
) -> None:
    path = tmp_path / "dead.csv"
    dead_lettered.add(dead_fields("a", error='two\nlines, "é"', tenant="x"), dead_fields("=1+1", error="@x"))

    done = cli.run("dead", "export", "--format", "csv", "--output", str(path))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"wrote 2 dead letters to {path}\n")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["order_id"], row["error"], row["attempts"]) for row in rows] == [
        ("a", 'two\\nlines, "é"', "3"),
        ("'=1+1", "'@x", "3"),
    ]
    assert (rows[0]["replayed_at"], json.loads(rows[0]["fields"])) == ("", {"tenant": "x"})
    assert [file.name for file in tmp_path.iterdir()] == ["dead.csv"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_owner_can_read_an_exported_file(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path, umask: int
) -> None:
    path = tmp_path / "dead.jsonl"
    path.touch(0o666)
    dead_lettered.add(dead_fields("a"))

    done = subprocess.run(
        [sys.executable, "-m", "ingest", "dead", "export", "--force", "--output", str(path)],
        env=cli.env,
        umask=umask,
        check=True,
        capture_output=True,
    )

    assert done.stderr.startswith(b"wrote 1 dead letter ")
    assert stat.filemode(path.stat().st_mode) == "-rw-------"


def test_export_replaces_a_file_only_when_told_to(cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    path.write_text("precious")
    dead_lettered.add(dead_fields("a"))

    refused = cli.run("dead", "export", "--output", str(path))
    kept = path.read_text()
    forced = cli.run("dead", "export", "--output", str(path), "--force")

    assert_one_line(refused, 1)
    assert "--force" in refused.stderr
    assert kept == "precious"
    assert forced.returncode == 0
    assert json.loads(path.read_text())["order_id"] == "a"


@pytest.mark.parametrize("where", ["folder", "folder/missing/dead", "folder/file/dead", "/dev/null", "folder/" + "x" * 300])  # fmt: skip
def test_a_path_that_cannot_be_written_is_one_line(cli: Cli, tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").touch()

    done = cli.run("dead", "export", "--force", "--output", str(tmp_path / where))

    assert_one_line(done, 1)
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["file"]
    assert Path("/dev/null").is_char_device()


def test_after_a_full_disk_an_export_is_resumed(cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}", error="x" * 1_000) for number in range(500))
    command = [sys.executable, "-m", "ingest", "dead", "export", "--output", str(tmp_path / "dead.jsonl")]

    # The largest file that the process may write, in blocks of 512 or 1,024 bytes.
    limited = subprocess.run(
        ["sh", "-c", 'ulimit -f 200; exec "$@"', "sh", *command],
        env=cli.env,
        capture_output=True,
        text=True,
        check=False,
    )

    assert_one_line(limited, 1)
    assert "dead.jsonl" in limited.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["dead.jsonl.part"]
    assert cli.run(*command[3:], "--resume").returncode == 0
    assert [each["order_id"] for each in lines((tmp_path / "dead.jsonl").read_text("utf-8"))] == [
        f"o-{number}" for number in range(500)
    ]


def test_an_interrupted_export_reports_how_to_continue_it(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path
) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}", error="x" * 300) for number in range(60_000))
    process = cli.start("dead", "export", "--output", str(tmp_path / "dead.jsonl"))

    eventually_sync(lambda: any(file.stat().st_size for file in tmp_path.iterdir()), every=0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)

    part = tmp_path / "dead.jsonl.part"
    hint = f"the export is not complete: run it again with --resume to continue {part}\n"
    assert (process.returncode, stderr) == (130, f"{hint}stopped\n")
    assert list(tmp_path.iterdir()) == [part]


# -- closed pipes ------------------------------------------------------------------------------------------------


def test_a_reader_that_closes_after_one_line_gets_it_and_the_command_succeeds(
    cli: Cli, dead_lettered: StoredDeadLetters
) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}", error="x" * 500) for number in range(5_000))
    command = f"{sys.executable} -m ingest dead export | head -1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], env=cli.env, capture_output=True, text=True, timeout=60, check=False)

    first, code = done.stdout.splitlines()
    assert json.loads(first)["order_id"] == "o-0"
    assert (code, done.stderr) == ("0", "")
