"""Output fits the terminal, and is complete in a pipe."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from acceptance.dead_lettering import StoredDeadLetters, on_a_terminal
from dead_letter_entries import dead_fields
from support import Cli, eventually_sync

from ingest.settings import Settings

NARROW = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
UUID = "0d5c9a1e-7f57-4b7e-9a53-0a4f4f3c1d2e"


def printed(cli: Cli, *arguments: str, **env: str) -> list[str]:
    """The lines that a command prints on a terminal of 80 columns."""
    _, written = on_a_terminal(cli, *arguments, env={**NARROW, **env})
    return [line.rstrip() for line in written.replace("\r\n", "\n").splitlines()]


def words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


# -- dead list ----------------------------------------------------------------------------------------------------


def test_in_a_pipe_each_dead_letter_is_one_line_unless_columns_is_set(
    cli: Cli, dead_lettered: StoredDeadLetters
) -> None:
    dead_lettered.add(*(dead_fields(UUID, "attempts_exhausted", error="no answer " * 9) for _ in range(3)))

    free, narrow = cli.run("dead", "list"), cli.run("dead", "list", env={"COLUMNS": "80"})

    assert len(free.stdout.splitlines()) == 4
    assert all("no answer " * 8 in line for line in free.stdout.splitlines()[1:])
    assert max(len(line.rstrip()) for line in narrow.stdout.splitlines()) <= 80
    assert narrow.stdout.count("no answer no answer") >= 3


@pytest.mark.parametrize("command", ["export", "list"])
def test_no_progress_bar_is_drawn_between_lines_of_data(
    cli: Cli, dead_lettered: StoredDeadLetters, command: str
) -> None:
    # Long enough to be written that a bar would be shown.
    dead_lettered.add(*(dead_fields(number, document="x" * 700_000) for number in range(6)))

    code, written = on_a_terminal(cli, "dead", command, "--json", env={"TERM": "xterm", "COLUMNS": "80"})

    assert code == 0
    assert "\x1b" not in written
    assert {json.loads(line)["order_id"] for line in written.split("\r\n")[:-1]} == set("012345")


# -- retries and orders -------------------------------------------------------------------------------------------


def test_the_report_of_a_reconciliation_is_a_table_at_80_columns(
    cli: Cli, dead_lettered: StoredDeadLetters, tmp_path: Path
) -> None:
    listed = tmp_path / "ids"
    listed.write_text("".join(f"{number}-{UUID}\n" for number in range(5)))
    dead_lettered.add(
        dead_fields("a", "\x1b[1m\nSOUND", document="{}"),
        dead_fields("b", ""),
        *(dead_fields(reason, reason) for reason in ("attempts_exhausted", "invalid_order", "transform_failed")),
    )

    lines = list(filter(None, printed(cli, "reconcile", "--file", str(listed))))

    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert " ".join(names) == "accepted stored dead stored erased queued LOST wrong unexpected NOT"
    assert "\\x1b[1m SOUND 1" in words(lines)
    assert "without a reason 1" in words(lines)


# -- config -------------------------------------------------------------------------------------------------------


def test_config_breaks_no_value_and_no_word_at_80_columns(cli: Cli) -> None:
    long = "https://shop.example/" + "very/long/path/" * 8 + "{order_id}"

    lines = printed(cli, "config", "--all", INGEST_UPSTREAM_URL=long)

    assert [line.split() for line in lines if long in line] == [["INGEST_UPSTREAM_URL", long]]
    assert [line for line in lines if len(line) > 80 and len(line.split()) > 2] == []
    for name, field in Settings.model_fields.items():
        assert any(line.startswith(f"INGEST_{name.upper()}") for line in lines)
        assert words([field.description or ""]) in words(lines)


def test_config_in_a_pipe_is_a_line_for_each_setting(cli: Cli) -> None:
    done = cli.run("config", "--all", env={"INGEST_UPSTREAM_URL": "https://shop.example/" + "x" * 300 + "/{order_id}"})

    assert len(done.stdout.splitlines()) == 1 + len(Settings.model_fields)
    assert [line for line in done.stdout.splitlines() if "  " in line] == [], "columns are padded"


# -- the audit ----------------------------------------------------------------------------------------------------


def test_on_a_terminal_a_command_prints_its_result_and_with_debug_the_log_of_its_audit(cli: Cli) -> None:
    plain, debug = printed(cli, "order", "erase", "A", "--yes"), printed(cli, "order", "erase", "B", "--yes", "--debug")

    assert "operation_done" not in words(plain)
    assert "operation_done" in words(debug)


# -- status -------------------------------------------------------------------------------------------------------


def test_status_fits_80_columns_also_while_a_server_is_unavailable(cli: Cli) -> None:
    lines = printed(cli, "status", INGEST_REDIS_URL="redis://127.0.0.1:1/0")

    assert max(map(len, lines)) <= 80
    assert "redis: cannot connect to 127.0.0.1:1" in words(lines)
    assert not any(re.match(r" {20,}\S", line) for line in lines), "nothing hangs in the middle of the screen"


def test_a_watched_status_follows_the_size_of_its_window(cli: Cli) -> None:
    leader, follower = pty.openpty()
    termios.tcsetwinsize(leader, (30, 80))
    command = [sys.executable, "-m", "ingest", "status", "--watch", "--interval", "0.1"]
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**cli.env, "TERM": "xterm"}
    ) as process:
        try:
            eventually_sync(lambda: width_of_a_screen(leader) == 80)

            termios.tcsetwinsize(leader, (20, 50))

            eventually_sync(lambda: width_of_a_screen(leader) == 50)
        finally:
            process.kill()
            os.close(leader)
            os.close(follower)


def width_of_a_screen(terminal: int) -> int:
    """The longest line of the next whole screen that is written."""
    home, written = "\x1b[H", ""
    while written.count(home) < 3:
        written += os.read(terminal, 4096).decode(errors="replace")
    screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.split(home)[-2])
    return max(map(len, screen.splitlines()))


# -- questions and reports ----------------------------------------------------------------------------------------


def test_missing_orders_that_are_written_to_the_terminal_have_no_progress_between_them(cli: Cli) -> None:
    _, written = on_a_terminal(cli, "reconcile", "nowhere-1", "nowhere-2", "--missing", "-")

    shown = written.replace("\r\n", "\n").splitlines()
    assert shown[:2] == ["nowhere-1", "nowhere-2"]
