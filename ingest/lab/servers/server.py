"""Base class of the embedded servers, with start, stop, a directory, a port and a log."""

import secrets
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Self

from ingest.lab.errors import ServerError
from ingest.lab.process import ChildProcess
from ingest.lab.watchdog import Watchdog

START_SECONDS = 60.0  # enough for a busy machine, and for a recovery after a kill
STOP_SECONDS = 30.0
_POLL_SECONDS = 0.005
_PORT_ATTEMPTS = 20
_TAIL_BYTES = 4000


def free_port() -> int:
    """Find a free port.

    A port from bind(0) may also be used for outgoing connections. A client that retries against a stopped server
    would sooner or later be assigned the port that the server needs again. Therefore, the range is below the
    ephemeral ports of Linux (32768) and macOS (49152).
    """
    while True:
        port = 20000 + secrets.randbelow(10000)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class Server(ABC):
    """A server on a TCP port of 127.0.0.1.

    Use it as a context manager, or call `start` and `close`. After `stop` or `kill`, `start` runs the server again
    on the same port with the same data.

    Args:
        directory: directory for all files, which is created if it does not exist and never removed.
        watchdog: ends the server if this process ends, by default a new one.
        ports: proposes ports for the first start until one is free.
    """

    _ending = signal.SIGKILL  # signal that the watchdog sends

    def __init__(self, directory: Path, *, watchdog: Watchdog | None, ports: Callable[[], int]) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "server.log"
        self.password = secrets.token_urlsafe(18)
        self._ports = ports
        self._port: int | None = None
        self._running: ChildProcess | None = None
        self._pid: int | None = None
        self._shared_watchdog = watchdog
        self._own_watchdog: Watchdog | None = None

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1, the same for all restarts."""
        if self._port is None:
            raise ServerError("the server has not been started yet")
        return self._port

    @property
    def pid(self) -> int:
        """The server's process ID, which changes with each restart and remains available after `detach`."""
        if self._pid is None:
            raise ServerError("the server has not been started yet")
        return self._pid

    def is_running(self) -> bool:
        """Whether the server's process runs."""
        return self._running is not None and not self._running.has_ended()

    def start(self) -> None:
        """Start the server and wait until it responds.

        Raises:
            ServerError: the server ended early, or did not respond in time.
        """
        if self.is_running():
            raise ServerError(f"the server on port {self.port} is already running")
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._prepare()
        if self._port is not None:
            self._start_on(self._port)
            return
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                port = self._ports()
                self._start_on(port)
            except ServerError as error:
                # Another program took the port after `free_port` had checked it.
                if attempt == _PORT_ATTEMPTS or "Address already in use" not in str(error):
                    raise
            else:
                self._port = port
                return

    def kill(self) -> None:
        """End the server with SIGKILL, as in a crash."""
        if self._running is not None:
            self._running.kill()

    def close(self) -> None:
        """Stop the server if it runs, and kill it if it does not stop in time."""
        if self._running is not None and not self._running.has_ended():
            self._request_end()
            self._running.signal(signal.SIGCONT)  # a frozen process does not receive it
            if not self._running.has_ended(within=STOP_SECONDS):
                self._running.kill()
        self._clean_up()
        if self._own_watchdog is not None:
            self._own_watchdog.close()
            self._own_watchdog = None

    def detach(self) -> None:
        """Leave the server running, even after this process has ended."""
        self._process.release()
        self._running = None
        if self._own_watchdog is not None:
            self._own_watchdog.dismiss()
            self._own_watchdog = None

    @abstractmethod
    def _prepare(self) -> None:
        """Prepare the first start. `start` calls this before each start."""

    @abstractmethod
    def _command(self, port: int) -> Sequence[str | Path]:
        """The command line that runs the server on this port."""

    @abstractmethod
    def _is_ready(self, port: int, pid: int) -> bool:
        """Whether this process responds to requests."""

    @abstractmethod
    def _request_end(self) -> None:
        """Request a stop without loss of data."""

    @abstractmethod
    def _clean_up(self) -> None:
        """Remove remains of a stopped server outside its directory."""

    @property
    def _process(self) -> ChildProcess:
        if self._running is None:
            raise ServerError("the server has not been started yet")
        return self._running

    @property
    def _watchdog(self) -> Watchdog:
        if self._shared_watchdog is not None:
            return self._shared_watchdog
        if self._own_watchdog is None:
            self._own_watchdog = Watchdog()
        return self._own_watchdog

    def _spawn(self, command: Sequence[str | Path], ending: signal.Signals) -> ChildProcess:
        return ChildProcess(command, directory=self.directory, log=self.log, watchdog=self._watchdog, ending=ending)

    def _start_on(self, port: int) -> None:
        logged = self._logged_bytes()
        process = self._spawn(self._command(port), self._ending)
        self._running = process
        self._pid = process.pid
        deadline = monotonic() + START_SECONDS
        while not self._is_ready(port, process.pid):
            if process.has_ended(within=_POLL_SECONDS):
                raise ServerError(f"{type(self).__name__} ended early:\n{self._log_tail(logged)}")
            if monotonic() > deadline:
                process.kill()
                raise ServerError(f"{type(self).__name__} does not respond:\n{self._log_tail(logged)}")

    def _end(self, timeout: float) -> None:
        if not self._process.has_ended(within=timeout):
            raise ServerError(f"{type(self).__name__} did not stop in {timeout} s:\n{self._log_tail()}")

    def _logged_bytes(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def _log_tail(self, since: int = 0) -> str:
        return self.log.read_bytes()[since:][-_TAIL_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
