"""Runs commands of this machine and prints their progress."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

from contextlib import contextmanager

_STARTED = time.monotonic()
_SHOWN_OF_A_FAILURE = 30
_running: set[subprocess.Popen[str]] = set()


class CommandFailed(Exception):
    """A command failed. The message is the end of its output."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


def say(text: str) -> None:
    """A line for the person who waits, with the seconds since the start."""
    sys.stderr.write(f"{time.monotonic() - _STARTED:6.1f} s  {text}\n")
    sys.stderr.flush()


def seconds_so_far() -> float:
    """Since the start."""
    return time.monotonic() - _STARTED


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Say how long the block has taken, when it is done."""
    started = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - started:.1f} s")


def attempt(
    *command: str | Path,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    within: float = 300,
) -> Done:
    """Run a command to its end with any exit code. It gets SIGTERM if this process ends."""
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *map(str, command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=env,
        cwd=cwd,
    ) as process:
        _running.add(process)
        try:
            out, err = process.communicate(stdin, within)
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"`{_text(command)}` has not ended within {within:.0f} s") from None
        finally:
            process.terminate()
            _running.discard(process)
    return Done(process.returncode, out, err)


def run(
    *command: str | Path,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    within: float = 300,
) -> str:
    """Run a command that has to succeed, and return its output."""
    done = attempt(*command, stdin=stdin, env=env, cwd=cwd, within=within)
    if done.code:
        said = "\n".join((done.out + done.err).strip().splitlines()[-_SHOWN_OF_A_FAILURE:])
        raise CommandFailed(f"`{_text(command)}` failed with exit code {done.code}:\n{said}")
    return done.out


def end_commands() -> None:
    """Stop every running command, including commands of other threads."""
    for process in list(_running):
        process.terminate()


def wait_for(what: str, condition: Callable[[], object], *, within: float, every: float = 0.1) -> float:
    """Wait until the condition is true, and return the seconds."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > within:
            raise AssertionError(f"not within {within:.0f} s: {what}")
        time.sleep(every)
    return time.monotonic() - started


def _text(command: tuple[str | Path, ...]) -> str:
    return " ".join(map(str, command))
