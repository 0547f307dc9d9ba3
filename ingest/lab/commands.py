"""Runs the service's own commands as processes, in the same way as a user.

Each command runs in a private directory and reads its settings from a `.env` file there. It inherits no INGEST_… or
PG… variables and no other `.env` file. Like the embedded servers, commands run under a watchdog, so that they end
with the caller, however it ends.
"""

import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from ingest.lab.errors import LabFailed
from ingest.lab.process import ChildProcess, Streams
from ingest.lab.watchdog import Watchdog

TIMEOUT = 120.0
"""Seconds until an operation has failed that takes one second on an idle machine."""
_TAIL_LINES = 15


class LoggedProcess(ChildProcess):
    """A process with a name and a log file, which is shown and kept if the process fails.

    Attributes:
        name: display name.
        log: file for its output.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        home: Path,
        log: Path,
        watchdog: Watchdog,
        environment: Mapping[str, str],
        streams: Streams = Streams.LOGGED,
    ) -> None:
        self.name = name
        self.log = log
        super().__init__(command, directory=home, log=log, watchdog=watchdog, environment=environment, streams=streams)

    def stop(self, timeout: float) -> int | None:
        """Stop it with SIGTERM and return its exit code, or None if it did not stop in time and was killed."""
        self.signal(signal.SIGTERM)
        code = self.exit_code if self.has_ended(within=timeout) else None
        self.kill()
        return code

    def failed(self, reason: str) -> LabFailed:
        """Build the error for this failure, print the end of the log, and keep a copy of the log."""
        tail = "\n".join(f"    {line}" for line in self._logged()[-_TAIL_LINES:])
        sys.stderr.write(f"\nend of the log of {self.name}:\n{tail}\n")
        with tempfile.NamedTemporaryFile(prefix=f"ingest-{self.log.stem}-", suffix=".log", delete=False) as kept:
            shutil.copyfile(self.log, kept.name)
        return LabFailed(f"{self.name} {reason}; its log is kept in {kept.name}")

    def _logged(self) -> list[str]:
        # Without the last line, which may be incomplete.
        return self.log.read_text(errors="replace").rpartition("\n")[0].splitlines()


class Command(LoggedProcess):
    """One running `ingest …` command.

    Args:
        arguments: the command and its options. All users can read them, so they must not contain secrets.
        home: working directory with its `.env` file.
        log: file for its output, by default named after the command.
        watchdog: ends the command if this process ends.
        environment: variables to set in addition to PATH and LC_ALL.
    """

    def __init__(
        self,
        *arguments: str,
        home: Path,
        log: Path | None = None,
        watchdog: Watchdog,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            f"`ingest {arguments[0]}`",
            [sys.executable, "-m", "ingest", *arguments],
            home=home,
            log=log or home / f"{arguments[0]}.log",
            watchdog=watchdog,
            environment=environment or {},
        )

    def finish(self) -> None:
        """Wait until the command has ended successfully.

        Raises:
            LabFailed: the command failed, or did not end in time.
        """
        if not self.has_ended(within=TIMEOUT) or self.exit_code != 0:
            raise self.failed("did not succeed")

    def first_url(self) -> str:
        """Wait until the command prints a URL, and return that URL.

        Raises:
            LabFailed: the command ended without printing one.
        """
        deadline = monotonic() + TIMEOUT
        while True:
            for line in self._logged():
                if line.startswith("http"):
                    return line
            if self.has_ended(within=0.01) or monotonic() > deadline:
                raise self.failed("did not start")


class Commands:
    """Starts commands in one directory with one configuration, and ends the remaining commands at the end of its block.

    Args:
        home: directory to create.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._settings: dict[str, str] = {}
        self._started: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self.home.mkdir(mode=0o700)
        with ExitStack() as starting:
            self.watchdog = starting.enter_context(Watchdog())
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Add settings for programs that are started later."""
        self._settings |= settings
        file = self.home / ".env"
        file.touch(mode=0o600)  # passwords
        file.write_text("".join(f"{name}='{value}'\n" for name, value in self._settings.items()))

    def start(self, *arguments: str, **environment: str) -> Command:
        """Start `ingest …` with its own log file and these environment variables."""
        name = arguments[0]
        self._started[name] += 1
        log = self.home / (f"{name}.log" if self._started[name] == 1 else f"{name}-{self._started[name]}.log")
        command = Command(*arguments, home=self.home, log=log, watchdog=self.watchdog, environment=environment)
        self._running.callback(command.kill)
        return command
