"""The service's own commands as processes, started as a user would start them.

Each gets its settings from a `.env` file in a private directory, which is also where it runs, and nothing else of the
caller's environment: no INGEST_… variable, no `.env` of another directory, no PG… variable. Like the embedded servers
they stand under a watchdog's eye, so that none of them outlives the demo, whatever ends it.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING

from ingest.demo.run.errors import DemoFailed
from ingest.lab.servers.process import ServerProcess
from ingest.lab.servers.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_PATIENCE = 120.0  # seconds for what takes one, on a machine that is busy with something else
_TAIL_LINES = 15


class Command:
    """One running `ingest …` command.

    Args:
        arguments: the command and its options; no secrets, everybody can read them.
        home: its working directory, with its `.env`.
        watchdog: ends it, should this process vanish.
    """

    def __init__(self, *arguments: str, home: Path, watchdog: Watchdog) -> None:
        self.name = arguments[0]
        self.log = home / f"{self.name}.log"
        self._process = ServerProcess(
            [sys.executable, "-m", "ingest", *arguments],
            directory=home,
            log=self.log,
            watchdog=watchdog,
            # The servers go at the same moment: there would be nothing left to finish.
            ending=signal.SIGKILL,
        )
        self.pid = self._process.pid

    def has_ended(self, within: float = 0.0) -> bool:
        """Wait up to `within` seconds for it and all its children to be gone."""
        return self._process.has_ended(within)

    def finish(self) -> None:
        """Wait until it has done its work.

        Raises:
            DemoFailed: it did not succeed.
        """
        if not self.has_ended(within=_PATIENCE) or self._process.exit_code != 0:
            raise self.failed("did not succeed")

    def first_url(self) -> str:
        """Wait until it prints a URL, and return it.

        Raises:
            DemoFailed: it ended without one.
        """
        deadline = monotonic() + _PATIENCE
        while True:
            for line in self._logged():
                if line.startswith("http"):
                    return line
            if self.has_ended(within=0.01) or monotonic() > deadline:
                raise self.failed("did not start")

    def stop(self, patience: float) -> int | None:
        """Ask it to stop, and return its exit code; None if it would not and was killed."""
        self._process.signal(signal.SIGTERM)
        if self.has_ended(within=patience):
            return self._process.exit_code
        self._process.kill()
        return None

    def kill(self) -> None:
        """End it with all its children, at once."""
        self._process.kill()

    def release(self) -> None:
        """Leave it running when this process has ended."""
        self._process.release()

    def failed(self, what: str) -> DemoFailed:
        """The error that says so; shows the end of its log, and keeps the log where it outlives the demo."""
        tail = "\n".join(f"    {line}" for line in self._logged()[-_TAIL_LINES:])
        sys.stderr.write(f"\nthe end of the log of `ingest {self.name}`:\n{tail}\n")
        with tempfile.NamedTemporaryFile(prefix=f"ingest-demo-{self.name}-", suffix=".log", delete=False) as kept:
            shutil.copyfile(self.log, kept.name)
        return DemoFailed(f"`ingest {self.name}` {what}; its log is kept in {kept.name}")

    def _logged(self) -> list[str]:
        # Only whole lines: the last may still be being written.
        return self.log.read_text(errors="replace").rpartition("\n")[0].splitlines()


class Commands:
    """Starts commands in one directory, with one configuration; ends those that run when its block is left.

    Args:
        home: a directory of its own, made here.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._settings: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.home.mkdir(mode=0o700)
        with ExitStack() as starting:
            self._watchdog = starting.enter_context(Watchdog())
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Add settings for what is started from now on."""
        self._settings |= settings
        file = self.home / ".env"
        file.touch(mode=0o600)  # passwords
        file.write_text("".join(f"{name}='{value}'\n" for name, value in self._settings.items()))

    def start(self, *arguments: str) -> Command:
        """Start `ingest …`."""
        command = Command(*arguments, home=self.home, watchdog=self._watchdog)
        self._running.callback(command.kill)
        return command
