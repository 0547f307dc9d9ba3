"""Control groups of Linux, versions 1 and 2, for the limits of a container without a container. Needs root."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

MOUNT = Path("/sys/fs/cgroup")
MIB = 1024 * 1024
_PREFIX = "ingest-rehearsal-"
_CONTROLLERS = ("cpu", "cpuacct", "memory")
_SECONDS_TO_EMPTY = 10.0
# It joins the groups before it becomes the program, so that everything the program uses counts.
_JOIN = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a container in processors and bytes.

    Attributes:
        period: µs in which it may use its share of the processors, by default as container engines set it.
    """

    cpus: float
    memory: int
    period: int = 100_000


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a group.

    Attributes:
        cpu: seconds.
        throttled: periods of 0.1 s in which it had to wait for its share of the processors.
        working_set: bytes as Kubernetes counts them, without files that can be read again.
        peak: peak in bytes, including files that it was the first to read.
        killed: processes that were killed because of the memory limit.
    """

    cpu: float
    throttled: int
    working_set: int
    peak: int
    killed: int


class ControlGroup:
    """One group with its limits, which exists until `remove`."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.limits = limits
        self.is_v2 = (MOUNT / "cgroup.controllers").exists()
        # In version 1, each controller uses a separate tree.
        self._folders = (
            dict.fromkeys(_CONTROLLERS, MOUNT / name)
            if self.is_v2
            else {controller: MOUNT / controller / name for controller in _CONTROLLERS}
        )
        if self.is_v2:
            (MOUNT / "cgroup.subtree_control").write_text("+cpu +memory")
        for folder in set(self._folders.values()):
            folder.mkdir()
        period, quota = limits.period, int(limits.cpus * limits.period)
        if self.is_v2:
            self._write("cpu", "cpu.max", f"{quota} {period}")
            self._write("memory", "memory.max", str(limits.memory))
        else:
            self._write("cpu", "cpu.cfs_period_us", str(period))
            self._write("cpu", "cpu.cfs_quota_us", str(quota))
            self._write("memory", "memory.limit_in_bytes", str(limits.memory))

    def containing(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command in the group."""
        files = sorted({str(folder / "cgroup.procs") for folder in self._folders.values()})
        return ["/bin/sh", "-c", _JOIN, "join", *files, "--", *command]

    def usage(self) -> Usage:
        """The usage so far."""
        times, memory = self._table("cpu", "cpu.stat"), self._table("memory", "memory.stat")
        if self.is_v2:
            cpu = times["usage_usec"] / 1e6
            now, peak, inactive = "memory.current", "memory.peak", "inactive_file"
            killed = self._table("memory", "memory.events")["oom_kill"]
        else:
            cpu = int(self._read("cpuacct", "cpuacct.usage")) / 1e9
            now, peak, inactive = "memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_inactive_file"
            killed = self._table("memory", "memory.oom_control").get("oom_kill", 0)
        in_use = int(self._read("memory", now))
        most = int(self._read("memory", peak))
        return Usage(cpu, times["nr_throttled"], max(0, in_use - memory[inactive]), most, killed)

    def remove(self) -> None:
        """Remove the group, whose processes have ended or are about to end."""
        for folder in set(self._folders.values()):
            _remove(folder)

    def _read(self, controller: str, file: str) -> str:
        return (self._folders[controller] / file).read_text()

    def _write(self, controller: str, file: str, value: str) -> None:
        (self._folders[controller] / file).write_text(value)

    def _table(self, controller: str, file: str) -> dict[str, int]:
        return {name: int(value) for name, value in map(str.split, self._read(controller, file).splitlines())}


class ControlGroups:
    """Creates groups. Use `control_groups` to create it."""

    def __init__(self) -> None:
        self.made: list[ControlGroup] = []

    def make(self, limits: Limits) -> ControlGroup:
        """A further group, for one container."""
        group = ControlGroup(f"{_PREFIX}{os.getpid()}-{len(self.made)}", limits)
        self.made.append(group)
        return group


def require_root() -> None:
    """End the program unless it may make control groups and network namespaces."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise SystemExit("this rehearsal sets limits and networks as a container engine does: run it as root on Linux")


@contextmanager
def control_groups() -> Iterator[ControlGroups]:
    """Groups that are removed at the end. Groups of a killed rehearsal are removed immediately."""
    require_root()
    _remove_left()
    groups = ControlGroups()
    try:
        yield groups
    finally:
        for group in groups.made:
            group.remove()


def _remove_left() -> None:
    for folder in [*MOUNT.glob(f"{_PREFIX}*"), *MOUNT.glob(f"*/{_PREFIX}*")]:
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    """A group can be removed once the kernel has let go of its last process."""
    deadline = monotonic() + _SECONDS_TO_EMPTY
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if monotonic() > deadline:
                raise
            sleep(0.05)
