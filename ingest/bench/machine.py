"""Describes the machine of a bench, because figures depend on it."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine at the beginning of the bench.

    Attributes:
        cores: logical processors that this process may use.
        memory: bytes.
        load: mean length of the run queue over the minute before the bench.
    """

    processor: str
    cores: int
    memory: int
    system: str
    python: str
    load: float

    @classmethod
    def here(cls) -> "Machine":
        """Describe the current machine."""
        return cls(
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            memory=psutil.virtual_memory().total,
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            load=round(os.getloadavg()[0], 2),
        )

    def sentence(self) -> str:
        """The description below a table."""
        gigabytes = self.memory / 2**30
        return (
            f"{self.cores} cores ({self.processor}), {gigabytes:.0f} GiB, {self.system}, Python {self.python}; "
            f"load before: {self.load}."
        )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
