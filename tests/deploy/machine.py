"""The machine: its requirements, its packages, and its state before and after.

A Docker engine changes more than its folder. It turns IP forwarding on, adds chains to the packet filter, and creates
bridges. The work folder contains the previous state, so that the next run can restore it if this run is killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.shell import attempt, run, say

if TYPE_CHECKING:
    from collections.abc import Iterator

WORK = Path(tempfile.gettempdir()) / "order-ingest-deploy"

# `docker top` needs procps.
_PACKAGES = ("docker.io", "iptables", "iproute2", "mmdebstrap", "procps")
# Debian's policy for maintainer scripts that start services, which forbids all with 101.
_POLICY = Path("/usr/sbin/policy-rc.d")
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_BEFORE = "before.json"
_ENGINE_PROGRAMS = ("dockerd", "containerd", "containerd-shim-runc-v2")
_ENGINE_STOPS_WITHIN = 30.0


class NotThisMachine(Exception):
    """The machine cannot be used. The message contains the reason."""


def reason_to_skip() -> str | None:
    """The reason why the machine cannot be used, or None."""
    system = Path("/etc/os-release")
    facts = system.read_text().replace('"', "").splitlines() if system.exists() else []
    if os.geteuid() != 0 or not {"ID=debian", "VERSION_ID=12"} <= set(facts):
        return "needs root on Debian 12"
    return None


@contextmanager
def alone() -> Iterator[None]:
    """Prevent a second run during this one, and first remove the remains of an earlier run."""
    # A name that only one process can have, and that is free again when it ends, however that happens.
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(f"\0{WORK}")
        except OSError:
            raise NotThisMachine("another `make test-deploy` runs on this machine") from None
        if WORK.exists():
            say("removing what a run that was killed has left behind")
            restore()
        WORK.mkdir(mode=0o755)
        yield


def install() -> None:
    """Install missing packages of Debian without starting services."""
    if not (missing := [name for name in _PACKAGES if not _is_installed(name)]):
        return
    say(f"apt-get installs {', '.join(missing)}")
    has_policy = _POLICY.exists()
    if not has_policy:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "--quiet", "update", env=environment)
        run("apt-get", "--quiet", "--yes", "--no-install-recommends", "install", *missing, env=environment)
    finally:
        if not has_policy:
            _POLICY.unlink()


def _is_installed(package: str) -> bool:
    return attempt("dpkg-query", "--show", "--showformat=${db:Status-Status}", package).out == "installed"


# -- Before and after ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """The part of a machine's network that a Docker engine changes."""

    forwarding: str
    filters: str
    links: list[str]

    @classmethod
    def now(cls) -> Network:
        """As it is."""
        return cls(
            _FORWARDING.read_text().strip(), _filters(), sorted(path.name for path in Path("/sys/class/net").iterdir())
        )


def remember() -> None:
    """Save the state of the network before the engine starts."""
    network = Network.now()
    if ":DOCKER" in network.filters or "docker0" in network.links:
        raise NotThisMachine("a Docker engine has been at work on this machine; this needs a machine of its own")
    (WORK / _BEFORE).write_text(json.dumps(asdict(network)))


def restore() -> list[str]:
    """Stop the engine, restore the network, remove the work folder, and return the parts that could not be removed."""
    _end_engine()
    _unmount()
    left = [f"process {pid}" for pid in _engine_processes()]
    if (WORK / _BEFORE).exists():
        before = Network(**json.loads((WORK / _BEFORE).read_text()))
        _restore_network(before)
        left += [*_differences(before, Network.now()), *map(str, _control_groups())]
    shutil.rmtree(WORK, ignore_errors=True)
    return [*left, *([str(WORK)] if WORK.exists() else [])]


def _end_engine() -> None:
    # dockerd stops its containers and containerd. Remaining processes had lost it before.
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = _engine_processes("dockerd") if number == signal.SIGTERM else _engine_processes()
        for pid in pids:
            _signal(pid, number)
        _wait_for_the_end_of(pids)


def _engine_processes(*programs: str) -> list[int]:
    """The processes of the engine and its containers, or only the processes that run one of `programs`."""
    containers = [path.name for path in WORK.glob("data/containers/*")]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            groups = (process / "cgroup").read_text()
        except OSError:  # it has ended
            continue
        is_engine = Path(arguments[0].decode(errors="replace")).name in (programs or _ENGINE_PROGRAMS)
        if (is_engine and str(WORK).encode() in b" ".join(arguments)) or (
            not programs and any(name in groups for name in containers)
        ):
            found.append(int(process.name))
    return found


def _wait_for_the_end_of(pids: list[int]) -> None:
    deadline = time.monotonic() + _ENGINE_STOPS_WITHIN
    while any(map(_is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        # A zombie waits for its parent to notice.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _unmount() -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in reversed(mounts):
        if Path(mount).is_relative_to(WORK):
            attempt("umount", "--lazy", mount)


def _filters() -> str:
    """The packet filter's rules, without counters and empty tables."""
    text = re.sub(r"\[\d+:\d+\]|^#.*\n", "", run("iptables-save"), flags=re.MULTILINE)
    tables = re.findall(r"^\*.*?^COMMIT\n", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(table for table in tables if "-A " in table or re.search(r"^:\S+ (?!ACCEPT)", table, re.MULTILINE))


def _restore_network(before: Network) -> None:
    for link in Network.now().links:
        if link not in before.links and link.startswith(("br-", "docker", "veth")):
            attempt("ip", "link", "delete", link)
    for table in ("filter", "nat"):
        saved = re.search(rf"^\*{table}\n.*?^COMMIT\n", before.filters, re.MULTILINE | re.DOTALL)
        run("iptables-restore", stdin=saved[0] if saved else _nothing_in(table))
    _FORWARDING.write_text(before.forwarding)
    for group in _control_groups():
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()


def _control_groups() -> list[Path]:
    """Docker's groups of processes, of either version of the kernel's interface."""
    return [path for path in (Path("/sys/fs/cgroup/docker"), *Path("/sys/fs/cgroup").glob("*/docker")) if path.is_dir()]


def _nothing_in(table: str) -> str:
    chains = ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING") if table == "nat" else ("INPUT", "FORWARD", "OUTPUT")
    return "\n".join([f"*{table}", *(f":{chain} ACCEPT [0:0]" for chain in chains), "COMMIT", ""])


def _differences(before: Network, now: Network) -> list[str]:
    was, is_now = asdict(before), asdict(now)
    return [f"{name}: {is_now[name]!r}, was {was[name]!r}" for name in was if was[name] != is_now[name]]
