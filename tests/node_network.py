"""A network whose hosts can be cut off from each other, for servers of a test. Needs root on Linux.

Each host is a network namespace with one address. Cut-off hosts send to a hardware address that does not exist, so that packets
are lost without an error, as in a partition of a real network.
"""

import fcntl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import which
from typing import TextIO

_NETWORKS = range(45, 95)
_LOCKS = Path("/run/lock")
_GONE = "02:00:00:00:00:01"


class NodeNetwork:
    """Hosts 1, 2, … at 10.77.NUMBER.1, …, and this machine at 10.77.NUMBER.254. Use `open` to create it."""

    def __init__(self, ip: str, number: int) -> None:
        self._ip = ip
        self._number = number
        self._count = 0
        self._cut: set[tuple[str, str]] = set()

    @classmethod
    @contextmanager
    def open(cls) -> Iterator["NodeNetwork"]:
        """Create it without hosts, and remove it with its hosts at the end. Several may exist."""
        ip = which("ip")
        assert ip, "this needs `ip` (iproute2)"
        with ExitStack() as stack:
            number = next(each for each in _NETWORKS if _is_taken(stack.enter_context(_lock(each).open("w"))))
            made = cls(ip, number)
            made._remove()  # remains of a killed test
            try:
                made._run("link", "add", made._bridge, "type", "bridge")
                made._run("address", "add", f"{made._address(254)}/24", "dev", made._bridge)
                made._run("link", "set", made._bridge, "up")
                yield made
            finally:
                made._remove()

    def add(self) -> tuple[str, Callable[[Sequence[str | Path]], list[str | Path]]]:
        """Create another host, and return its address and a function whose result runs a command there."""
        self._count += 1
        name, link, address = self._name(self._count), f"in{self._number}-{self._count}", self._address(self._count)
        self._run("netns", "add", name)
        self._run("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._run("link", "set", link, "master", self._bridge, "up")
        self._run("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        self._run("-n", name, "link", "set", "eth0", "up")
        self._run("-n", name, "link", "set", "lo", "up")
        return address, lambda command: [self._ip, "netns", "exec", name, *command]

    def cut(self, ones: Sequence[str], others: Sequence[str]) -> None:
        """Lose all packets between each of these addresses and each of the others. This machine reaches all of them."""
        for one in ones:
            for other in others:
                self._cut |= {(one, other), (other, one)}
                self._lose(one, other)
                self._lose(other, one)

    def heal(self) -> None:
        """Let all hosts reach each other."""
        for one, other in self._cut:
            self._run("-n", self._name_at(one), "neighbour", "delete", other, "dev", "eth0")
        self._cut.clear()

    def _lose(self, one: str, other: str) -> None:
        mapping = (other, "lladdr", _GONE, "dev", "eth0", "nud", "permanent")
        self._run("-n", self._name_at(one), "neighbour", "replace", *mapping)

    @property
    def _bridge(self) -> str:
        return f"in{self._number}"

    def _address(self, host: int) -> str:
        return f"10.77.{self._number}.{host}"

    def _name(self, host: int) -> str:
        return f"ingest-{self._number}-{host}"

    def _name_at(self, address: str) -> str:
        return self._name(int(address.rpartition(".")[2]))

    def _remove(self) -> None:
        # A link also disappears with its namespace, but later.
        links = [("link", "delete", each.name) for each in Path("/sys/class/net").glob(f"{self._bridge}*")]
        names = [("netns", "delete", each.name) for each in Path("/run/netns").glob(f"ingest-{self._number}-*")]
        for arguments in (*links, *names):
            with suppress(subprocess.CalledProcessError):
                self._run(*arguments)

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._ip, *arguments], check=True, capture_output=True)


def _lock(number: int) -> Path:
    return _LOCKS / f"ingest-network-{number}"


def _is_taken(lock: TextIO) -> bool:
    """Take it unless another process has it."""
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
