"""The worker's handle of one transform process, which starts, calls and ends it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import msgspec

from ingest.domain.errors import ConfigError
from ingest.mapping.transforms.messages import HEADER, LARGEST_REPLY, Reply, Start, decode_reply, framed

# For starting an interpreter and the user's imports.
_START_TIMEOUT = 60.0
# Between the end of a process' socket and the end of the process.
_TO_DIE = 1.0


class ProcessEnded(Exception):
    """The process ended during a call, or must be ended because the call takes too long."""


class TookTooLong(ProcessEnded):
    """The call takes too long."""


class ChildProcess:
    """A process that runs the function for one order after another."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._exit_code: int | None = None

    @classmethod
    async def start(cls, start: Start) -> "ChildProcess":
        """Start a process, and wait until it has loaded the function.

        Raises:
            ConfigError: if the function cannot be loaded.
            ProcessEnded: if the process ends before that.
            OSError: if the system cannot start another process.
        """
        ours, its = socket.socketpair()
        try:
            with its:
                # Not by asyncio, which would reap the process. Its ID remains the ID of its group until `end` reaps it.
                process = subprocess.Popen(  # noqa: ASYNC220, S603  like asyncio, with our own module
                    [sys.executable, "-P", "-m", "ingest.mapping.transforms.transform_process", str(os.getpid())],
                    stdin=its.fileno(),
                    # Outside the process group that a terminal signals.
                    start_new_session=True,
                )
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        child = cls(process, reader, writer)
        try:
            await child._load(start)
        except BaseException:
            await asyncio.shield(child.end())
            raise
        return child

    async def _load(self, start: Start) -> None:
        reply = await self.call(framed(start), _START_TIMEOUT)
        if reply.error:
            raise ConfigError(reply.error)

    @property
    def has_ended(self) -> bool:
        """Whether it can no longer be called."""
        # A process that it has forked may keep the socket open.
        return self._process.poll() is not None or self._reader.at_eof()

    async def call(self, task: bytes, timeout: float) -> Reply:  # noqa: ASYNC109  it ends the process, not only this call
        """Call the function, and return the reply. After an error or a cancellation, the process must be ended.

        Raises:
            ProcessEnded: if the process ends during the call.
            TookTooLong: if it does not reply in time.
        """
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(task)
                [size] = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                if size > LARGEST_REPLY:
                    raise ConnectionError("a reply that is too large")
                return decode_reply(await self._reader.readexactly(size))
        except TimeoutError as error:
            raise TookTooLong(f"took longer than {timeout:g} s") from error
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as error:
            code = await self.end()
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise ProcessEnded(f"ended its process ({cause})") from error

    async def end(self) -> int:
        """Kill the process, reap it, and return its exit code, negative for a signal.

        Programs that the function has started also end, unless they have left its process group.
        """
        # Only once, because afterwards another process may get its ID.
        if self._exit_code is None:
            has_closed = self._reader.at_eof()
            self._writer.close()
            self._exit_code = await asyncio.to_thread(_ended, self._process, _TO_DIE if has_closed else 0.0)
        return self._exit_code


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    """End a process and its group after waiting `seconds` for it to exit. Return its exit code."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    # macOS denies it for a group that contains only zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
