"""The supervisor with real processes: it starts, watches, restarts and stops them, and leaves none behind."""

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from heard_process import HeardProcess
from process_state import is_alive
from support import eventually_sync, fill

SCRIPT = Path(__file__).with_name("supervised.py")


class Supervised(HeardProcess):
    """A supervisor under test, and the output of its children."""

    def hear_pid(self, word: str) -> int:
        return int(self.hear(word)[0])

    def hear_when(self, word: str, urged: Callable[[], None]) -> int:
        """The PID in the next line with this word, after urging as often as it takes."""
        for _ in range(40):
            urged()
            with suppress(queue.Empty):
                return int(self.hear(word, within=0.5)[0])
        raise AssertionError(f"nobody said {word!r}")

    def ask(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def exit_code(self, within: float = 20.0) -> int:
        return self.process.wait(within)

    def close(self) -> None:
        """Kill whatever is left."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


Start = Callable[..., Supervised]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Supervised] = []

    def started(kinds: str, grace: float = 20.0, via: Sequence[str] = (), log: int = subprocess.PIPE) -> Supervised:
        process = subprocess.Popen(
            [*via, sys.executable, SCRIPT, kinds, str(grace)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            text=True,
        )
        running.append(Supervised(process))
        return running[-1]

    yield started
    for supervised in running:
        supervised.close()


def test_a_child_that_dies_is_restarted_at_once_and_then_after_growing_pauses(start: Start) -> None:
    supervisor = start("dies,serves")

    starts = [float(supervisor.hear("started")[0]) for _ in range(4)]
    supervisor.hear("died")
    supervisor.ask()

    assert supervisor.exit_code() == 0, "the death of a child before the stop is no failure of the stop"
    supervisor.output()
    assert [event["restart_in"] for event in supervisor.events("process_died")][:3] == [0.0, 0.5, 1.0]
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert pauses[1] >= 0.5
    assert pauses[2] >= 1.0
    assert {event["code"] for event in supervisor.events("process_died")} == {3}


def test_a_log_that_nobody_reads_delays_neither_a_restart_nor_a_stop(start: Start) -> None:
    unread, log = os.pipe()
    fill(log)
    supervisor = start("serves,ignores", grace=0.1, log=log)
    first, second = supervisor.hear_pid("serving"), supervisor.hear_pid("serving")

    os.kill(first, signal.SIGKILL)
    supervisor.hear_pid("serving")
    supervisor.ask()

    assert supervisor.exit_code() == 1, "one of them had to be killed"
    assert not is_alive(second)
    os.close(unread)
    os.close(log)


def test_a_process_that_waits_for_the_reader_of_its_log_stops_when_asked(start: Start) -> None:
    unread, log = os.pipe()
    fill(log)
    supervisor = start("logs", log=log)
    supervisor.hear_pid("logging")

    supervisor.ask()

    assert supervisor.exit_code() == 0, "it need not be killed"
    assert supervisor.hear_pid("stopped")
    os.close(unread)
    os.close(log)


def test_a_log_pipe_that_does_not_block_is_not_waited_for(start: Start) -> None:
    unread, log = os.pipe()
    fill(log)
    os.set_blocking(log, False)
    supervisor = start("logs", log=log)

    assert supervisor.hear_pid("logged")
    supervisor.ask()

    assert supervisor.exit_code() == 0
    os.close(unread)
    os.close(log)


def test_a_bug_in_a_child_is_shown_and_ends_only_that_child(start: Start) -> None:
    supervisor = start("raises,serves")

    serving = supervisor.hear_pid("serving")
    for _ in range(3):
        supervisor.hear("died")
    assert is_alive(serving)
    supervisor.ask()

    assert supervisor.exit_code() == 0
    assert "ZeroDivisionError: a bug of the child" in supervisor.output()


def test_under_nohup_the_end_of_the_terminal_stops_nothing(start: Start) -> None:
    supervisor = start("serves,takes_its_time", via=("nohup",))
    children = {supervisor.hear_pid("serving"), supervisor.hear_pid("serving")}

    os.killpg(supervisor.process.pid, signal.SIGHUP)
    supervisor.ask()
    assert {supervisor.hear_pid("asked"), supervisor.hear_pid("asked")} == children
    supervisor.hear_when("hurried", supervisor.ask)

    assert supervisor.exit_code() == 0
    supervisor.output()
    assert [event["cause"] for event in supervisor.events("stop_requested")] == ["SIGTERM", "SIGTERM"]


def test_a_child_that_fails_while_it_stops_makes_the_exit_code_1(start: Start) -> None:
    supervisor = start("serves,fails_at_the_end")
    for _ in range(2):
        supervisor.hear("serving")

    supervisor.ask()

    assert supervisor.exit_code() == 1


def test_a_child_that_does_not_stop_is_killed_and_the_exit_code_is_1(start: Start) -> None:
    supervisor = start("ignores,serves", grace=0.1)
    children = {supervisor.hear_pid("serving"), supervisor.hear_pid("serving")}

    supervisor.ask()

    assert supervisor.exit_code() == 1
    supervisor.output()
    assert len(supervisor.events("process_killed")) == 1
    assert not any(map(is_alive, children))


def test_repeated_requests_do_not_postpone_the_kill(start: Start) -> None:
    supervisor = start("ignores", grace=0.1)
    supervisor.hear("serving")

    def ended() -> bool:
        supervisor.ask()
        return supervisor.process.poll() is not None

    eventually_sync(ended, within=15, every=0.5)
    assert supervisor.exit_code() == 1


def test_a_child_that_waits_for_its_restart_is_not_started_after_the_stop(start: Start) -> None:
    supervisor = start("dies,takes_its_time")
    for _ in range(3):
        supervisor.hear("died")
    supervisor.ask()
    supervisor.hear("asked")

    # Its pause is a second, and the other child delays the stop for longer.
    asked = time.monotonic()
    eventually_sync(lambda: time.monotonic() - asked > 1.5)
    supervisor.hear_when("hurried", supervisor.ask)

    assert supervisor.exit_code() == 0
    supervisor.output()
    assert len(supervisor.events("process_died")) == 3
    assert len(supervisor.events("process_started")) == 3 + 1


def test_children_of_a_supervisor_that_was_killed_end_by_themselves(start: Start) -> None:
    supervisor = start("watches_the_lifeline,watches_the_lifeline")
    children = [supervisor.hear_pid("serving"), supervisor.hear_pid("serving")]

    supervisor.ask(signal.SIGKILL)

    assert {supervisor.hear_pid("orphaned"), supervisor.hear_pid("orphaned")} == set(children)
    eventually_sync(lambda: not any(map(is_alive, children)))


def test_a_restarted_child_holds_the_lifeline_as_the_first_one_did(start: Start) -> None:
    supervisor = start("watches_the_lifeline,watches_the_lifeline")
    first, second = supervisor.hear_pid("serving"), supervisor.hear_pid("serving")
    os.kill(first, signal.SIGKILL)
    third = supervisor.hear_pid("serving")

    supervisor.ask(signal.SIGKILL)

    eventually_sync(lambda: not any(map(is_alive, (second, third))))


def test_neither_dead_children_nor_orphans_below_them_stay_as_zombies(start: Start) -> None:
    supervisor = start("leaves_an_orphan,leaves_an_orphan")
    first, second = supervisor.hear_pid("serving"), supervisor.hear_pid("serving")
    os.kill(first, signal.SIGKILL)
    third = supervisor.hear_pid("serving")

    me = psutil.Process(supervisor.process.pid)
    eventually_sync(lambda: {child.pid for child in me.children()} == {second, third})
    supervisor.ask()
    assert supervisor.exit_code() == 0


def test_a_stop_during_the_forks_is_never_lost(start: Start) -> None:
    supervisor = start("is_stopped")

    outcomes = [supervisor.hear("stopped") for _ in range(60)]

    # A child that missed it would be killed after 26 s, and the exit code be 1.
    assert {status for status, _ in outcomes} == {"0"}
    assert max(float(seconds) for _, seconds in outcomes) < 20
    assert supervisor.exit_code() == 0


# The limit of processes does not bind root: then it is another user, who may read what root may.
_UNPRIVILEGED = (
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--bounding-set=-all,+dac_override",
    "--inh-caps=-all,+dac_override",
    "--ambient-caps=-all,+dac_override",
)


def test_a_refused_fork_is_tried_again_and_the_other_children_continue(start: Start) -> None:
    supervisor = start("limits_forks,limits_forks,serves", via=_UNPRIVILEGED if os.geteuid() == 0 else ())
    serving = {supervisor.hear_pid("serving") for _ in range(3)}
    eventually_sync(lambda: len(supervisor.events("process_started")) == 3)
    # They serve in any order.
    started = supervisor.events("process_started")
    first, second = (event["pid"] for event in started if event["process"] == "limits_forks")
    (other,) = serving - {first, second}

    os.kill(first, signal.SIGKILL)
    supervisor.hear("limited")
    eventually_sync(lambda: len(supervisor.events("process_not_started")) >= 2)
    assert all(map(is_alive, (supervisor.process.pid, second, other)))
    os.kill(second, signal.SIGKILL)
    supervisor.hear("unlimited")
    third, fourth = supervisor.hear_pid("serving"), supervisor.hear_pid("serving")

    refused = supervisor.events("process_not_started")
    assert [event["retry_in"] for event in refused[:2]] == [0.5, 1.0]
    assert {(event["level"], event["process"]) for event in refused} == {("error", "limits_forks")}
    assert all("temporarily unavailable" in event["error"] for event in refused)
    supervisor.ask()
    assert {supervisor.hear_pid("asked") for _ in range(3)} == {third, fourth, other}
    assert supervisor.exit_code() == 0


def test_a_supervisor_that_cannot_fork_stops_when_asked(start: Start) -> None:
    supervisor = start("limits_forks", via=_UNPRIVILEGED if os.geteuid() == 0 else ())
    os.kill(supervisor.hear_pid("serving"), signal.SIGKILL)
    eventually_sync(lambda: supervisor.events("process_not_started"))

    supervisor.ask()

    assert supervisor.exit_code() == 0
