"""Real event loops in separate processes report their blocks, and no other delays."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from heard_process import HeardProcess
from support import eventually_sync

SCRIPT = Path(__file__).with_name("looping.py")
# Above the delays of a healthy loop on a busy machine.
THRESHOLD = 0.4


class Looping(HeardProcess):
    """A process with one kind of loop, and its output."""

    def says(self, name: str, times: int = 1, within: float = 20) -> dict[str, Any]:
        """Wait until it has logged an event this number of times, and return the last one."""
        return eventually_sync(lambda: self.events(name)[times - 1 :], within=within)[0]

    def freeze(self, seconds: float) -> None:
        """Stop it as a suspended machine would, for a while."""
        process = psutil.Process(self.process.pid)
        process.suspend()
        eventually_sync(lambda: process.status() == psutil.STATUS_STOPPED)
        time.sleep(seconds)
        process.resume()

    def end(self) -> None:
        """Let it end, and hear it out."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0, self.log
        self.output()


@contextmanager
def looping(kind: str, threshold: float = THRESHOLD) -> Iterator[Looping]:
    pipe = subprocess.PIPE
    command = [sys.executable, str(SCRIPT), kind, str(threshold)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Looping(process)
        finally:
            process.kill()


def test_a_blocking_call_is_reported_once_while_it_blocks() -> None:
    with looping("waits_once") as loop:
        blocked = loop.says("event_loop_blocked")
        freed_then = loop.events("event_loop_unblocked")
        free = loop.says("event_loop_unblocked")
        loop.end()

    assert freed_then == []
    innermost = blocked["stack"].split("  File ")[-1]
    assert "in holds_the_loop" in innermost
    assert "time.sleep(seconds)" in innermost
    assert "in waits_once" in blocked["stack"]
    assert blocked["level"] == "warning"
    assert THRESHOLD <= blocked["seconds"] <= free["seconds"]
    assert blocked["cpu_seconds"] < blocked["seconds"] / 2
    assert free["seconds"] > 2 * THRESHOLD
    assert len(loop.events("event_loop_blocked")) == len(loop.events("event_loop_unblocked")) == 1
    assert "run_until_complete" not in blocked["stack"]  # it begins inside the callback that the loop runs


def test_a_computation_that_holds_the_gil_is_reported_when_it_releases_it() -> None:
    with looping("computes") as loop:
        blocked = loop.says("event_loop_blocked", within=60)  # its calls get longer step by step

    assert "in takes_all_cpu" in blocked["stack"]
    assert blocked["cpu_seconds"] > blocked["seconds"] / 10  # as much as a busy machine lets it have


def test_a_repeated_block_is_counted_and_reported_again_after_a_while() -> None:
    with looping("waits_often", 0.2) as loop:
        first = loop.says("event_loop_blocked")
        second = loop.says("event_loop_blocked", times=2)
        loop.end()

    assert first["suppressed"] == 0
    assert second["suppressed"] > 0


def test_an_overloaded_loop_is_not_blocked() -> None:
    with looping("toils") as loop:
        loop.hear("turn", times=75)
        loop.end()

    assert loop.events("event_loop_blocked") == []


@pytest.mark.parametrize("kind", ["idles", "toils"])
def test_a_stopped_process_does_not_count_as_a_blocked_loop(kind: str) -> None:
    with looping(kind) as loop:
        for _ in range(2):
            loop.hear("turn", times=5)
            loop.freeze(2 * THRESHOLD)
        loop.hear("turn", times=40)
        loop.end()

    assert loop.events("event_loop_blocked") == []


def test_without_a_threshold_there_is_no_thread_and_no_warning() -> None:
    with looping("waits_once", 0) as loop:
        threads = loop.hear("threads")
        loop.hear("turn")
        loop.end()

    assert threads == ["1"]
    assert loop.events("event_loop_blocked") == []


def test_the_thread_ends_with_the_context() -> None:
    with looping("idles") as loop:
        during = loop.hear("threads")
        loop.hear("turn")
        loop.end()
        after = loop.hear("threads")

    assert (during, after) == (["2"], ["1"])
