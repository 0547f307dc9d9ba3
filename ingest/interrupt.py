"""Ends what Ctrl-C would not end by itself: imports, and reads within an event loop.

It is imported before all others and imports little: until it has, Ctrl-C ends a command with a traceback.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process with `stopped` and exit code 130 at SIGINT: while Python imports, an exception may be taken for another, or swallowed.

    Not in a background job of a shell, which must keep running.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interrupting_reads() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, within a task of `asyncio.run`, while a read may wait for its input.

    There SIGINT only cancels the task, which has no effect before its next await: the read would go on.
    """
    import asyncio  # noqa: PLC0415  it takes three quarters of the time until Ctrl-C is handled

    cancel = signal.getsignal(signal.SIGINT)
    if not callable(cancel):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError
        yield
    finally:
        signal.signal(signal.SIGINT, cancel)


def _stop(*_: object) -> None:
    # Nothing has started yet.
    os.write(2, b"stopped\n")
    os._exit(130)
