"""Measures what process trees use: CPU time and memory.

CPU time is the kernel's, of each process and of its children that have ended and been waited for. Memory is the
proportional set size (PSS), which counts a page that several processes share only once in their sum: the sum of what `ps`
shows would count the interpreter again for each worker. Where the system does not report it, the resident set size (RSS)
is used instead.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Thread
from time import clock_gettime, monotonic
from types import TracebackType
from typing import Self

import psutil

MEASURE = "PSS" if sys.platform == "linux" else "RSS"
"""What `memory_bytes` measures on this system."""


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants; none if it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def descendants(pid: int) -> list[psutil.Process]:
    """A process's descendants, in the order in which they were started."""
    try:
        return sorted(family(pid)[1:], key=lambda child: (child.create_time(), child.pid))
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its descendants so far, ended ones included; 0.0 if it has ended itself."""
    return sum(map(_cpu, family(pid)))


def memory_bytes(pid: int) -> int:
    """Memory of a process and its descendants now."""
    return sum(map(_memory, family(pid)))


class PeakMemory:
    """Samples the memory of process trees on a thread of its own while its block runs, and once more at its end.

    Attributes:
        now: bytes of all of them together at the last sample.
        peak: most bytes of all of them together, so far.

    Args:
        pids: the trees' roots.
        every: seconds between samples.
    """

    def __init__(self, pids: Sequence[int], every: float = 0.25) -> None:
        self._pids = pids
        self._every = every
        self._done = Event()
        self._thread = Thread(target=self._run, name="peak-memory", daemon=True)
        self.now = 0
        self.peak = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        due = monotonic()
        is_last = False
        while True:
            self.now = sum(map(memory_bytes, self._pids))
            self.peak = max(self.peak, self.now)
            if is_last:
                return
            due += self._every
            is_last = self._done.wait(max(0.0, due - monotonic()))


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    own = times.user + times.system
    with suppress(OSError, OverflowError):
        # As clock_getcpuclockid(3) computes it on Linux: nanoseconds, where /proc has hundredths of a second.
        own = clock_gettime((~process.pid << 3) | 2) if sys.platform == "linux" else own
    return float(own + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0))


def _memory(process: psutil.Process) -> int:
    try:
        info = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(info, "pss", info.rss))
