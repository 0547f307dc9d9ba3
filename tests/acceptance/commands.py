"""The real `ingest worker` as a process, and its log while it runs."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from support import Cli, Process, eventually


@dataclass
class WorkerCommand:
    """One running `ingest worker` with its processes and its log so far."""

    process: Process
    log: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                event = {"event": "", "text": line}
            self.log.append(event)

    def events(self, name: str, **fields: object) -> list[dict[str, Any]]:
        """The events that it has logged with this name and these fields."""
        return [event for event in list(self.log) if event["event"] == name and fields.items() <= event.items()]

    async def says(self, name: str, within: float = 60.0, **fields: object) -> dict[str, Any]:
        """Wait until it logs an event."""

        async def said() -> list[dict[str, Any]]:
            assert self.process.poll() is None or self.events(name, **fields), f"it ended: {self.log}"
            return self.events(name, **fields)

        return (await eventually(said, within=within))[0]

    def pid_of(self, child: str) -> int:
        """The process in a slot, the last one started there."""
        return int(self.events("process_started", process=child)[-1]["pid"])

    def ask(self, number: signal.Signals) -> None:
        """Send a signal only to the supervisor, like a process manager."""
        self.process.send_signal(number)

    def ask_child(self, child: str, number: signal.Signals) -> None:
        """Send a signal to the process in a slot."""
        os.kill(self.pid_of(child), number)

    def ask_group(self, number: signal.Signals) -> None:
        """Send a signal to all processes together, like a terminal."""
        os.killpg(self.process.pid, number)

    async def exit_code(self, within: float = 60.0) -> int:
        """Wait for its end and the end of its log."""

        await eventually(lambda: self.process.poll() is not None, within=within)
        await asyncio.to_thread(self._reader.join, 20)
        assert self.process.returncode is not None
        return self.process.returncode

    async def stop(self) -> int:
        """Ask it to stop, and wait for its end."""
        self.ask(signal.SIGTERM)
        return await self.exit_code()

    def close(self) -> None:
        """Kill its remaining processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.join(20)


@dataclass
class Workers:
    """Starts worker commands for one test."""

    cli: Cli
    env: dict[str, str]
    started: list[WorkerCommand] = field(default_factory=list)

    def start(self, *options: str, new_interpreter: bool = False, **settings: object) -> WorkerCommand:
        """Start `ingest worker`, with settings named as in Python."""
        own = {f"INGEST_{name.upper()}": str(value) for name, value in settings.items()}
        process = self.cli.start("worker", *options, env={**self.env, **own}, new_interpreter=new_interpreter)
        command = WorkerCommand(process)
        self.started.append(command)
        return command


async def is_refused(host: str, port: int) -> bool:
    """Whether a new connection to this port fails."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


@contextmanager
def running_api(cli: Cli) -> Iterator[WorkerCommand]:
    api = WorkerCommand(cli.start("api", env={"INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"}))
    try:
        yield api
    finally:
        api.close()


@contextmanager
def closing_workers(cli: Cli, env: dict[str, str]) -> Iterator[Workers]:
    """The workers of one test, killed at its end."""
    workers = Workers(cli, env)
    try:
        yield workers
    finally:
        for command in workers.started:
            command.close()
