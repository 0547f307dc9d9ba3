"""A process of a test, whose lines and log events the test waits for."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any


class HeardProcess:
    """A process whose output is read by threads.

    Attributes:
        process: it, with its output as text.
        log: the lines of its standard error. A line that is no event has the name "".
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self._said: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=_read, args=arguments, daemon=True)
            for arguments in ((process.stdout, self._said.put), (process.stderr, self._add_to_log))
        ]
        for reader in self._readers:
            reader.start()

    def _add_to_log(self, line: str) -> None:
        try:
            self.log.append(json.loads(line))
        except json.JSONDecodeError:
            self.log.append({"event": "", "text": line})

    def hear(self, word: str, within: float = 30.0, times: int = 1) -> list[str]:
        """The rest of the last of so many next lines that begin with this word."""
        until = time.monotonic() + within
        while times:
            first, *rest = self._said.get(timeout=max(0.01, until - time.monotonic())).split()
            times -= first == word
        return rest

    def events(self, name: str) -> list[dict[str, Any]]:
        """The logged events with this name."""
        return [event for event in list(self.log) if event["event"] == name]

    def output(self) -> str:
        """The whole log, once the process has finished logging."""
        for reader in self._readers:
            reader.join(20)
        return "\n".join(map(str, self.log))


def _read(stream: Any, take: Callable[[str], None]) -> None:
    for line in stream or ():
        take(line)
