"""Starts, checks, kills and stops the measured processes, which are programs of a bench or the service itself."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from ingest.bench.stage import Stage
from ingest.lab.commands import LoggedProcess
from ingest.lab.usage import cpu_seconds, descendants

_STOP_SECONDS = 45.0  # beyond the grace period of the workers


class Contender:
    """Processes that store orders and run from `start` to `close`.

    Args:
        stage: servers and commands.
        api_url: URL of the external API.
        ca_file: the CA of its certificate, or None for plain HTTP.

    Attributes:
        parts: started processes, without the ones killed on purpose.
    """

    parts: list[LoggedProcess]

    def __init__(self, stage: Stage, api_url: str, ca_file: Path | None = None) -> None:
        self._stage = stage
        self._api = {"INGEST_UPSTREAM_URL": api_url}
        if ca_file is not None:
            self._api["INGEST_UPSTREAM_CA_FILE"] = str(ca_file)
        self.parts = []

    def start(self) -> None:
        """Start the processes."""
        raise NotImplementedError

    @property
    def pids(self) -> list[int]:
        """The roots of the process trees."""
        return [part.pid for part in self.parts]

    def check(self) -> None:
        """Check that all parts are running.

        Raises:
            LabFailed: a part has ended.
        """
        for part in self.parts:
            if part.has_ended():
                raise part.failed("ended unexpectedly")

    def cpu(self) -> float:
        """CPU seconds so far, including processes that have ended."""
        return sum(map(cpu_seconds, self.pids))

    def stop(self) -> list[int | None]:
        """Stop all parts and return the exit codes, with None for parts that had to be killed."""
        return [part.stop(_STOP_SECONDS) for part in self.parts]

    def close(self) -> None:
        """Kill the remaining parts."""
        for part in self.parts:
            part.kill()

    def _start_program(self, module: str, *arguments: str) -> None:
        """Start a program of the bench with the addresses of all servers in its environment."""
        self.parts.append(self._stage.program(module, *arguments, **self._environment()))

    def _start_executable(self, file: Path, *arguments: str, **environment: str) -> None:
        """Start a program of the bench that is not written in Python, with the same and further variables."""
        self.parts.append(self._stage.executable(file, *arguments, **self._environment(), **environment))

    def _environment(self) -> dict[str, str]:
        return {
            "INGEST_REDIS_URL": self._stage.redis_url,
            "INGEST_POSTGRES_DSN": self._stage.postgres_dsn,
            **self._api,
        }


class ServiceContender(Contender):
    """The service as a user runs it, with one or more `ingest worker` commands.

    Args:
        settings: settings of the workers as INGEST_… variables, with None for a default.
        commands: number of commands.
        ca_file: the CA of the API's certificate, or None for plain HTTP.

    Attributes:
        environment: variables to set in addition to PATH and LC_ALL.
    """

    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        stage: Stage,
        api_url: str,
        settings: Mapping[str, Any],
        commands: int = 1,
        *,
        ca_file: Path | None = None,
    ) -> None:
        super().__init__(stage, api_url, ca_file)
        self._settings = self._api | {name: str(value) for name, value in settings.items() if value is not None}
        self._commands = commands
        self._cpu_of_killed = 0.0

    def start(self) -> None:
        """Start the commands."""
        self._stage.commands.configure(self._settings)
        self.parts += [self._stage.commands.start("worker", **self.environment) for _ in range(self._commands)]

    def cpu(self) -> float:
        """CPU seconds so far, including a killed command."""
        return super().cpu() + self._cpu_of_killed

    def kill_worker(self) -> bool:
        """Kill a worker process, and return whether there was one."""
        # The oldest, because the process that serves /metrics is started last.
        return kill(descendants(self.pids[0])[:1])

    def kill_command(self) -> None:
        """Kill the first command with all of its processes."""
        first = self.parts.pop(0)
        self._cpu_of_killed += cpu_seconds(first.pid)
        first.kill()


def kill(processes: Sequence[psutil.Process]) -> bool:
    """Kill the processes, and return whether there were any."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(processes)
