"""The dead letters of one test, and commands on their own terminals."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from dead_letter_entries import Fields, chunks
from process_state import is_waiting
from redis import Redis
from shipped import environment_of
from support import Cli, eventually_sync

from ingest.queue.layout.keys import Keys

# Makes the terminal the controlling one of that process, so that Ctrl-C reaches it.
_OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class StoredDeadLetters:
    """The dead letters of one test, and its queue."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys

    def add(self, *entries: Fields) -> list[str]:
        """Write dead letters and return their IDs."""
        return self.add_many(entries)

    def add_many(self, entries: Iterable[Fields]) -> list[str]:
        """Write any number of dead letters and return their IDs."""
        entry_ids: list[str] = []
        for chunk in chunks(entries):
            with self.redis.pipeline(transaction=False) as pipe:
                for fields in chunk:
                    pipe.xadd(self.keys.dead, fields)
                entry_ids += [entry_id.decode() for entry_id in pipe.execute()]
        return entry_ids

    @property
    def dead(self) -> list[str]:
        """The orders of the dead letters, oldest first."""
        return self._orders(self.keys.dead)

    @property
    def queued(self) -> list[str]:
        """The orders in the express lane, where replayed ones go, oldest first, followed by the main lane's orders."""
        return [order for lane in self.keys.lanes for order in self._orders(lane.stream)]

    def _orders(self, key: str) -> list[str]:
        return [fields[b"order_id"].decode() for _, fields in self.redis.xrange(key)]


@pytest.fixture
def dead_lettered(redis_url: str, queue_name: str) -> Iterator[StoredDeadLetters]:
    with Redis.from_url(redis_url) as redis:
        yield StoredDeadLetters(redis, Keys.of(queue_name))


def on_a_terminal(
    cli: Cli, *arguments: str, answer: bytes = b"", env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command on its own terminal, answer its question, and return its exit code and its output."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _OWN, sys.executable, "-m", "ingest", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**environment_of(arguments, cli.env), "TERM": "xterm", "COLUMNS": "120", **(env or {})},
        start_new_session=True,
    ) as process:
        try:
            os.close(follower)
            written = b""
            with suppress(OSError):  # the other end is closed
                while data := os.read(leader, 4096):
                    written += data
                    if answer and b"[y/N]" in written:
                        # A Ctrl-C just before Python begins to read does not end the wait for a line. The next one does.
                        eventually_sync(lambda: is_waiting(process.pid))
                        os.write(leader, answer)
                        answer = b""
            return process.wait(30), written.decode()
        finally:
            process.kill()
            os.close(leader)


def assert_one_line(done: subprocess.CompletedProcess[str], code: int) -> None:
    """Check that a failure is reported in one line."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("ingest: ")


def lines(text: str) -> list[Any]:
    """Parse JSON lines."""
    return [json.loads(line) for line in text.splitlines()]
