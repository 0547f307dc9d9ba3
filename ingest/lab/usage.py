"""Measures the CPU time and memory of process trees.

CPU time is measured by the kernel and includes children that have ended and been waited for. Memory is the
proportional set size (PSS), in whose sum a page that several processes share counts once. A sum of the values that
`ps` shows would count the interpreter again for each worker. On systems that do not report PSS, memory is the
resident set size (RSS).
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Thread
from time import clock_gettime, monotonic
from typing import Self

import psutil

MEASURE = "PSS" if sys.platform == "linux" else "RSS"
"""The measure of `memory_bytes` on this system."""


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants, or an empty list if it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def descendants(pid: int) -> list[psutil.Process]:
    """A process's descendants in the order of their start."""
    try:
        return sorted(family(pid)[1:], key=lambda child: (child.create_time(), child.pid))
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its descendants, including ended ones, or 0.0 if the process has ended."""
    return sum(map(_cpu, family(pid)))


def memory_bytes(pid: int) -> int:
    """Current memory of a process and its descendants."""
    return sum(map(_memory, family(pid)))


class PeakMemory:
    """Samples the memory of process trees in a separate thread during its block, and once more at the end.

    Attributes:
        now: bytes of all trees in the last sample.
        peak: maximum of all samples so far.

    Args:
        pids: roots of the trees.
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

    def __exit__(self, *_: object) -> None:
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
        # Like clock_getcpuclockid(3) on Linux, with nanoseconds instead of the hundredths of a second in /proc.
        own = clock_gettime((~process.pid << 3) | 2) if sys.platform == "linux" else own
    return float(own + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0))


def _memory(process: psutil.Process) -> int:
    try:
        info = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(info, "pss", info.rss))
