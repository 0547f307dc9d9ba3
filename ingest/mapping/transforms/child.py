"""One transform process, as its worker sees it: started, asked, killed."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from contextlib import suppress

import msgspec

from ingest.domain.errors import ConfigError
from ingest.mapping.transforms.messages import HEADER, LARGEST_REPLY, Reply, Start, Task, decode_reply, frame

# For an interpreter and the user's imports.
_START_TIMEOUT = 60.0
# Between the end of a process' socket and its own end.
_TO_DIE = 1.0


class ProcessEnded(Exception):
    """The process has ended in the middle of a call, or has to be ended, since the call takes too long."""


class TookTooLong(ProcessEnded):
    """It has to be ended."""


class ChildProcess:
    """A process that runs the function for one order at a time."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, start: Start) -> "ChildProcess":
        """Start one, and wait until it has loaded the function.

        Raises:
            ConfigError: if the function cannot be loaded.
            ProcessEnded: if the process ends before that.
            OSError: if the system refuses another process.
        """
        ours, its = socket.socketpair()
        try:
            with its:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "ingest.mapping.transforms.transform_process", str(os.getpid())),
                    stdin=its.fileno(),
                    # Not in the process group that a terminal signals.
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
        reply = await self._exchange(frame(start), _START_TIMEOUT)
        if reply.error:
            raise ConfigError(reply.error)

    @property
    def has_ended(self) -> bool:
        """Whether it can be asked no more."""
        return self._process.returncode is not None or self._reader.at_eof()

    async def call(self, task: Task, timeout: float) -> Reply:  # noqa: ASYNC109  it ends a process, not this call alone
        """What becomes of one call. After an error, or if it is cancelled, the process has to be ended.

        Raises:
            ProcessEnded: if the process ends in the call.
            TookTooLong: if it does not answer in time.
        """
        return await self._exchange(frame(task), timeout)

    async def end(self) -> int:
        """End it now, and wait until it has, so that it leaves no zombie; returns its exit code, negative for a signal.

        Programs that the function has started end with it, unless they have left its process group.
        """
        # Where the socket is open though the process has ended, one that it has forked keeps it, and with it the group.
        return await self._end(has_group=self._process.returncode is None or not self._reader.at_eof())

    async def _end(self, *, has_group: bool) -> int:
        # The ID of a process that has been waited for, which is that of its group, may be another's by now.
        has_group = has_group and (self._process.returncode is None or not _exists(self._process.pid))
        is_closed = self._reader.at_eof()
        self._writer.close()
        if is_closed:
            # It has died: asking for that before the event loop knows would take its exit code from the loop.
            with suppress(TimeoutError):
                async with asyncio.timeout(_TO_DIE):
                    await self._process.wait()
        if has_group:
            # macOS refuses it for a group that has only zombies.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return await self._process.wait()

    async def _exchange(self, request: bytes, timeout: float) -> Reply:  # noqa: ASYNC109
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                self._writer.write(request)
                return decode_reply(await self._frame())
        except TimeoutError as error:
            raise TookTooLong(f"took longer than {timeout:g} s") from error
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as error:
            # It has ended in this call: its group is still its own, even if the event loop already knows of its end.
            raise ProcessEnded(f"ended its process ({_cause(await self._end(has_group=True))})") from error

    async def _frame(self) -> bytes:
        [size] = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if size > LARGEST_REPLY:
            raise ConnectionError("a reply that is too large")
        return await self._reader.readexactly(size)


def _cause(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
