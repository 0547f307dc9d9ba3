"""Hosts as network namespaces with their own names and addresses on one bridge. Needs root on Linux."""

import fcntl
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NETWORK = "10.77.44"
HERE = f"{NETWORK}.254"
"""The address of this machine, where the servers are."""

_BRIDGE = "ingest-net"
_LOCK = Path("/run/lock/ingest-rehearsal")
# The host's name is a part of the names of its consumers.
_NAMED = 'hostname "$1" && shift && exec "$@"'


class Network:
    """Hosts 1 to N, each with a link that can be taken down. Use `network` to create them."""

    def __init__(self, ip: str, unshare: str, hosts: int) -> None:
        self._ip, self._unshare = ip, unshare
        self.hosts = range(1, hosts + 1)

    def name(self, host: int) -> str:
        """As the host calls itself."""
        return f"ingest-host-{host}"

    def on(self, host: int) -> Callable[[list[str]], list[str]]:
        """The prefix of a command line that runs it on a host."""
        name = self.name(host)
        start = [self._ip, "netns", "exec", name, self._unshare, "--uts", "/bin/sh", "-c", _NAMED, "name", name]
        return lambda command: [*start, *command]

    def set_link(self, host: int, state: str) -> None:
        """Take the host's link down, or up: `down`, `up`."""
        self._run("link", "set", f"ingest-{host}", state)

    def build(self) -> None:
        """Make the bridge, the namespaces and the links."""
        self._run("link", "add", _BRIDGE, "type", "bridge")
        self._run("address", "add", f"{HERE}/24", "dev", _BRIDGE)
        self._run("link", "set", _BRIDGE, "up")
        for host in self.hosts:
            name, link = self.name(host), f"ingest-{host}"
            self._run("netns", "add", name)
            self._run("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            self._run("link", "set", link, "master", _BRIDGE)
            self._run("-n", name, "address", "add", f"{NETWORK}.{host}/24", "dev", "eth0")
            self._run("-n", name, "link", "set", "eth0", "up")
            self._run("-n", name, "link", "set", "lo", "up")
            self.set_link(host, "up")

    def remove(self) -> None:
        """Remove everything, including remains of a killed rehearsal."""
        for host in self.hosts:
            for what in (("link", "delete", f"ingest-{host}"), ("netns", "delete", self.name(host))):
                with suppress(subprocess.CalledProcessError):
                    self._run(*what)
        with suppress(subprocess.CalledProcessError):
            self._run("link", "delete", _BRIDGE)

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._ip, *arguments], check=True, capture_output=True)


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """Hosts 1 to N, which are removed at the end. Only one rehearsal can use them."""
    ip, unshare = shutil.which("ip"), shutil.which("unshare")
    if ip is None or unshare is None:
        raise SystemExit("this rehearsal needs `ip` (iproute2) and `unshare` (util-linux)")
    with _LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another rehearsal with these hosts is running") from None
        made = Network(ip, unshare, hosts)
        made.remove()
        try:
            made.build()
            yield made
        finally:
            made.remove()
