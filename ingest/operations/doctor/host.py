"""The resources of this machine or container."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Version 2 of control groups, and version 1.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that a process may use here.

    Attributes:
        memory: bytes, or None if unknown.
        open_files: limit of one process, or None if unlimited.
        cores: CPU cores available.
    """

    memory: int | None
    open_files: int | None
    cores: int

    @classmethod
    def here(cls) -> Self:
        """Return the limits that apply to this process."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return cls(_memory(), None if files == resource.RLIM_INFINITY else files, _cores())


def _memory() -> int | None:
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    return min([physical, *filter(None, map(_limit, _LIMITS))])


def _limit(path: Path) -> int | None:
    """Return a control group's limit. A word or a very large number in the file means unlimited."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and int(text) else None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
