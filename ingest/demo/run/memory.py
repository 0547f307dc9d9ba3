"""How much memory the workers take together.

PSS, the proportional set size, counts a page that several processes share only once in their sum: the sum of what `ps`
shows would count the interpreter again for each worker. Where the system does not tell it, RSS stands in.
"""

from __future__ import annotations

from pathlib import Path

import psutil


class Memory:
    """Samples a process and its descendants.

    Args:
        pid: the process.
        expected: how many processes there are once all have started, itself included.
    """

    def __init__(self, pid: int, expected: int) -> None:
        self._top = psutil.Process(pid)
        self._expected = expected
        self._family: list[psutil.Process] = []
        self.measure = "PSS" if Path("/proc/self/smaps_rollup").exists() else "RSS"
        self.now = 0
        self.peak = 0

    def sample(self) -> None:
        """Measure them all, now; a moment at which one of them ends is skipped."""
        try:
            # Listing descendants looks at every process of the machine: not more often than needed.
            if len(self._family) != self._expected or not all(map(psutil.Process.is_running, self._family)):
                self._family = [self._top, *self._top.children(recursive=True)]
            self.now = sum(self._bytes(process) for process in self._family)
        except (psutil.Error, OSError):
            self._family = []
        self.peak = max(self.peak, self.now)

    def _bytes(self, process: psutil.Process) -> int:
        if self.measure == "RSS":
            return int(process.memory_info().rss)
        return _pss(Path(f"/proc/{process.pid}/smaps_rollup").read_text())


def _pss(rollup: str) -> int:
    """The bytes of the line `Pss:  1234 kB`."""
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
