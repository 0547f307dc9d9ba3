"""`ingest top` on a terminal, in a pipe, and without Redis."""

import json
import os
import pty
import re
import subprocess
import sys
import termios

from acceptance.queued import Queued
from support import Cli

FLAGS = 3


def test_top_is_drawn_until_q_and_leaves_the_terminal_as_it_was(cli: Cli, queued: Queued) -> None:
    queued.dead_letter("a")
    leader, follower = pty.openpty()
    termios.tcsetwinsize(leader, (24, 80))
    before = termios.tcgetattr(follower)[FLAGS]

    with subprocess.Popen(
        [sys.executable, "-m", "ingest", "top"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**cli.env, "TERM": "xterm"},
    ) as process:
        try:
            first = read_until(leader, "sort by trouble")
            during = termios.tcgetattr(follower)[FLAGS]
            os.write(leader, b"s")
            read_until(leader, "sort by waiting")
            os.write(leader, b"p")
            read_until(leader, "FROZEN")
            os.write(leader, b"q")
            code = process.wait(30)
        finally:
            process.kill()
            after = termios.tcgetattr(follower)[FLAGS]
            os.close(leader)
            os.close(follower)

    assert code == 0
    assert "dead letters 1" in first
    assert "no worker is running" in first
    assert (during & termios.ICANON, after) == (0, before)


def read_until(terminal: int, text: str) -> str:
    """The characters of the screen until this text, without commands for the terminal."""
    written = ""
    while text not in written:
        written += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(terminal, 65536).decode(errors="replace"))
    return written


def test_once_prints_one_screen_into_a_pipe(cli: Cli, queued: Queued) -> None:
    queued.dead_letter("a")

    text, document = cli.run("top", "--once"), cli.run("top", "--once", "--json")

    assert (text.returncode, text.stderr, "\x1b" in text.stdout) == (0, "", False)
    assert "(unnamed)" in text.stdout
    report = json.loads(document.stdout)
    assert (report["queue"]["dead"], report["workers"], report["sources"][0]["condition"]["state"]) == (
        1,
        0,
        "no_worker",
    )


def test_without_redis_it_shows_the_reason(cli: Cli) -> None:
    done = cli.run("top", "--once", env={"INGEST_REDIS_URL": "redis://127.0.0.1:1/0"})

    assert (done.returncode, done.stderr) == (1, "")
    assert "Redis is unavailable: cannot connect to 127.0.0.1:1" in done.stdout
