"""A Redis server on a host of a network of a test."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from node_network import NodeNetwork
from servers.kinds import Kind

from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port
from ingest.lab.watchdog import Watchdog


class HostedServer(ValkeyServer):
    """Like its base.

    Args:
        folder: working directory.
        kind: the program.
        password: for clients.
        options: lines of its configuration.
        network: where it gets a host, or None for this machine's loopback address.
        watchdog: ends it if this process ends, by default a new one.
    """

    def __init__(
        self,
        folder: Path,
        kind: Kind,
        password: str,
        options: Mapping[str, str],
        network: NodeNetwork | None,
        watchdog: Watchdog | None = None,
    ) -> None:
        bind, self._there = network.add() if network else ("127.0.0.1", list)
        super().__init__(folder, binary=kind.binary, options={"bind": bind, **kind.users, **options}, watchdog=watchdog)
        self.password = password
        # Besides the port without TLS, if the options contain certificates.
        self.tls_port = free_port() if "tls-cert-file" in options else 0
        if self.tls_port:
            self._options = {**self._options, "tls-port": str(self.tls_port)}

    @property
    def tls_options(self) -> Mapping[str, str]:
        """The lines of its configuration that another server with the same certificate needs."""
        return {name: value for name, value in self._options.items() if name.startswith("tls-") and name != "tls-port"}

    @property
    def address(self) -> str:
        """The host and the port, as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _command(self, port: int) -> Sequence[str | Path]:
        return self._there(self._local_command(port))

    def _local_command(self, port: int) -> Sequence[str | Path]:
        """The command line on its host."""
        return super()._command(port)
