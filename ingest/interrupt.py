"""Ends the process at Ctrl-C while Python imports: an exception then may be mistaken for another, or swallowed."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End with `stopped` and exit code 130 at SIGINT; not in a background job of a shell, which must keep running."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(*_: object) -> None:
    # Nothing has started yet.
    os.write(2, b"stopped\n")
    os._exit(130)
