"""A process of a supervisor, and the part of a command that lets a supervisor start one when settings have changed."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

NEVER = float("inf")
"""The time at which a process starts that was not requested."""


@dataclass(slots=True)
class Child:
    """One supervised process.

    Attributes:
        name: for logs.
        main: the function that the process runs, given the lifeline's file descriptor. It returns the exit code. It is
            called with SIGTERM blocked, and unblocks it after it has installed its own handler.
        on_death: called in the parent when the process has died without a stop request.
        on_end: called in the parent with the exit code when a process that is not kept running has ended.
        is_kept: whether the process is started now, and again whenever it has ended. Otherwise it is started at `start_at`, which another
            part sets.
        listener: the socket that it accepts from, and closes at a stop request. The parent closes it as well, and
            children with another listener never have it open. While any process has it open, the system accepts
            connections, which would get no response.
        pid: of the running process, or 0 if none is running.
    """

    name: str
    main: Callable[[int], int]
    on_death: Callable[[], None] = lambda: None
    listener: socket.socket | None = None
    on_end: Callable[[int], None] = lambda _: None
    is_kept: bool = True
    pid: int = field(default=0, init=False)
    started: float = field(default=0.0, init=False)
    start_at: float = field(default=0.0, init=False)
    deaths: int = field(default=0, init=False)
    refused_forks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not self.is_kept:
            self.start_at = NEVER


class Report(Protocol):
    """Logs the work of the children: `ingest.services.workers.worker_report`."""

    def check(self) -> float:
        """Log due reports, and return the seconds until the next check."""


class Reload(Protocol):
    """Reads the settings again: `ingest.services.workers.sources_reload`. Its process is one of the children."""

    def check(self) -> float:
        """Check whether they have changed, and return the seconds until the next check."""

    def request(self) -> None:
        """SIGHUP was received."""
