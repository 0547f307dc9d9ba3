"""Surrounds a demo or a bench: an orderly end on Ctrl-C and SIGTERM, and enough open files."""

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
    """An exit stack that SIGTERM and Ctrl-C leave in order; what it takes down is then not interrupted a second time."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with sigterm_raises(), ExitStack() as stack:
            try:
                yield stack
            finally:
                # Taking servers down takes a moment, and an impatient second Ctrl-C would make it longer.
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, on_interrupt)


def private_directory(stack: ExitStack) -> Path:
    """A directory that is removed at the end, whatever ends this process."""
    with making_a_directory():
        home = Path(tempfile.mkdtemp(prefix="ingest-lab-"))
    stack.enter_context(Watchdog(removes=home))
    stack.callback(shutil.rmtree, home)
    return home


def allow_open_files(wanted: int = OPEN_FILES) -> None:
    """Raise the soft limit of open files, which children inherit: an order in flight is a connection at both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def order_ids(count: int, bundled: Collection[str], prefix: str) -> list[str]:
    """As many IDs as asked for: bundled ones in their order, then made-up ones that begin with `prefix`."""
    made_up = (f"{prefix}-{number:07}" for number in range(1, count - len(bundled) + 1))
    return [*islice(bundled, count), *made_up]
