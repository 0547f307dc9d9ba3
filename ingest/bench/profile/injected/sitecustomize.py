"""Samples the executed code of a worker process by its CPU time, without code in the service.

Python imports this module from PYTHONPATH when it starts. Each process that is forked by a command samples itself from
its first delivery on, and writes its samples to `PID.json` in the folder BENCH_PROFILE. The file is a list of [frames,
count], with frames as `module:qualname` from the innermost outwards. Without that variable, there are no samples. Only
the main thread is sampled. A sample that is due in compiled code is taken at the next step of Python code.
"""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

VARIABLE = "BENCH_PROFILE"

# On most machines, the interval is a tick of the kernel's clock, which is longer.
_EVERY = 0.001
_WRITE_EVERY = 200
_DELIVERING = ("ingest.flow.read.reader:", "ingest.flow.deliver.executor:")
_OUTERMOST = ("asyncio.runners", "uvloop")  # outer frames are the same in all samples


class Sampler:
    """Counts the stacks of this process.

    Args:
        directory: folder for the file.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._total = 0
        self._is_busy = False

    def start(self) -> None:
        """Take samples from now on."""
        signal.signal(signal.SIGPROF, self._on_time)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)

    def _on_time(self, _: int, frame: FrameType | None) -> None:
        if self._is_busy:  # the time for writing does not belong to a delivery
            return
        self._is_busy = True
        try:
            self._count(_names(frame))
        finally:
            self._is_busy = False

    def _count(self, names: tuple[str, ...]) -> None:
        if not self._total and not any(name.startswith(_DELIVERING) for name in names):
            return  # the process is starting, or is not a worker
        self._counts[names] += 1
        self._total += 1
        is_power_of_two = not self._total & (self._total - 1)
        if is_power_of_two or self._total % _WRITE_EVERY == 0:
            self._write()

    def _write(self) -> None:
        """Replace the file atomically, so that it is complete even after a kill."""
        file = self._directory / f"{os.getpid()}.json"
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(list(self._counts.items())))
        unfinished.replace(file)


def _names(frame: FrameType | None) -> tuple[str, ...]:
    names: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module in _OUTERMOST:
            break
        names.append(f"{module}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(names)


if directory := os.environ.get(VARIABLE):
    os.register_at_fork(after_in_child=Sampler(Path(directory)).start)
