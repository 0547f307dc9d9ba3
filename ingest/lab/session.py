"""Provides demos and benches with an orderly exit on Ctrl-C and SIGTERM, a private directory and enough open files."""

import resource
import shutil
import signal
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from ingest.lab.errors import making_a_directory
from ingest.lab.servers import sigterm_raises
from ingest.lab.watchdog import Watchdog

OPEN_FILES = 16_384


@contextmanager
def orderly_exit() -> Iterator[ExitStack]:
    """Yield an exit stack that is unwound on SIGTERM and Ctrl-C, and that a second signal does not interrupt."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with sigterm_raises(), ExitStack() as stack:
            try:
                yield stack
            finally:
                # Stopping the servers takes a moment, and a second Ctrl-C would interrupt it.
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, on_interrupt)


def private_directory(stack: ExitStack) -> Path:
    """Create a directory that is removed at the end, however this process ends."""
    with making_a_directory():
        home = Path(tempfile.mkdtemp(prefix="ingest-lab-"))
    stack.enter_context(Watchdog(removes=home))
    stack.callback(shutil.rmtree, home)
    return home


def allow_open_files(wanted: int = OPEN_FILES) -> None:
    """Raise the soft limit of open files for this process and its children, because each order in flight needs a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def order_ids(count: int, bundled: Collection[str], prefix: str) -> list[str]:
    """Return `count` IDs, first the bundled ones in their order and then generated IDs that begin with `prefix`."""
    made_up = (f"{prefix}-{number:07}" for number in range(1, count - len(bundled) + 1))
    return [*islice(bundled, count), *made_up]
