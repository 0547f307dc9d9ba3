"""A supervisor with children of a kind, as a process for tests: `python supervised.py KIND GRACE`.

Children report events in lines on stdout. The supervisor's log goes to stderr as JSON.
"""

import asyncio
import ctypes
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

from ingest.process.child import Child
from ingest.process.lifecycle import run_to_the_end, stop_on
from ingest.process.standard_streams import secure
from ingest.process.supervisor import Supervisor
from ingest.telemetry.logs import get_logger, setup_logs

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux' prctl: orphans below come to us, as to process 1 of a container


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def dies(_lifeline: int) -> int:
    """End immediately, without a request."""
    say("started", time.monotonic())
    return 3


def serves(_lifeline: int) -> int:
    """End on request."""
    say("serving", os.getpid())
    signal.sigwait([signal.SIGTERM])
    say("asked", os.getpid())
    return 0


def fails_at_the_end(_lifeline: int) -> int:
    """End on request, with an error."""
    serves(_lifeline)
    return 5


def takes_its_time(_lifeline: int) -> int:
    """End on the second request."""
    serves(_lifeline)
    signal.sigwait([signal.SIGTERM])
    say("hurried", os.getpid())
    return 0


def ignores(_lifeline: int) -> int:
    """Never end."""
    say("serving", os.getpid())
    while True:
        signal.sigwait([signal.SIGTERM])


def watches_the_lifeline(lifeline: int) -> int:
    """End when the supervisor is gone."""
    say("serving", os.getpid())
    select.select([lifeline], [], [])
    say("orphaned", os.getpid())
    return 0


def raises(_lifeline: int) -> int:
    """End by a bug."""
    raise ZeroDivisionError("a bug of the child")


def logs(lifeline: int) -> int:
    """Log more than a pipe takes in an event loop, and end on request."""

    async def main() -> None:
        stopped = asyncio.Event()
        stop_on(lifeline, lambda _: stopped.set())
        say("logging", os.getpid())
        for _ in range(1_000):
            get_logger("supervised").info("spoken", text="." * 100)
        say("logged", os.getpid())
        await stopped.wait()
        say("stopped", os.getpid())

    return run_to_the_end(main)


def limits_forks(lifeline: int) -> int:
    """End on request. Its death leaves the supervisor unable to fork, and the next death able again."""
    return serves(lifeline)


def toggle_limit() -> None:
    """Forbid this process to fork, however many processes its user runs, or allow it again."""
    limit, most = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1 if limit == most else most, most))
    say("limited" if limit == most else "unlimited")


def leaves_an_orphan(_lifeline: int) -> int:
    """End on request, and leave a grandchild to the supervisor, which ends immediately."""
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
    return serves(_lifeline)


def is_stopped(number: int) -> tuple[int, float]:
    """Stop a supervisor at a moment around its forks, and return its wait status and the duration."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Not lost before `run` has its handlers: it stays pending until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        os.write(told, b".")
        os._exit(Supervisor([Child(f"child-{slot}", waits_for_a_stop) for slot in range(4)], grace=20).run())
    os.read(ready, 1)
    # From before the first fork to after the last one: all of them take some milliseconds.
    time.sleep(0 if number % 4 == 0 else random.uniform(0, 0.01))
    asked = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    os.close(ready)
    os.close(told)
    return status, time.monotonic() - asked


def waits_for_a_stop(_lifeline: int) -> int:
    signal.sigwait([signal.SIGTERM])
    return 0


KINDS: dict[str, Callable[[int], int]] = {
    kind.__name__: kind
    for kind in (
        dies,
        serves,
        fails_at_the_end,
        takes_its_time,
        ignores,
        watches_the_lifeline,
        raises,
        logs,
        leaves_an_orphan,
        limits_forks,
    )
}


def main(kinds: str, grace: str) -> int:
    secure()
    setup_logs("json", "info")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    if kinds == "is_stopped":
        for number in range(60):
            say("stopped", *is_stopped(number))
        return 0
    children = [
        Child(kind, KINDS[kind], on_death=toggle_limit if kind == "limits_forks" else partial(say, "died", kind))
        for kind in kinds.split(",")
        if kind in KINDS
    ]
    return Supervisor(children, float(grace), margin=3.0).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
