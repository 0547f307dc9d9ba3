"""Stores the tokens of a source in a file. Implements `ingest.domain.fetch.token_store`.

The file is replaced atomically, so that a process that dies here leaves the old or the new content. The lock is on a second file, because
a lock on the file itself would be lost when that is replaced. The operating system releases it when the process dies.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from ingest.domain.fetch.token_store import Stored, TokenStoreUnavailable
from ingest.files.replacement import replace_file

_LARGEST = 1024 * 1024
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_T = TypeVar("_T")


class TokenFile:
    """A file, which may be on a volume that several hosts mount.

    Args:
        path: of the file. Its folder must exist, and this process must be allowed to write to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> Stored:
        """See `TokenStore`."""
        with _translated(self._path):
            return await asyncio.to_thread(_read, self._target())

    @asynccontextmanager
    async def lock(self) -> AsyncIterator["HeldFile | None"]:
        """See `TokenStore`."""
        path = self._target()
        with _translated(path):
            descriptor = os.open(path.with_name(f".{path.name}.lock"), _LOCK_FLAGS, 0o600)
        try:
            with _translated(path):
                held = HeldFile(path, await _completed(_read, path)) if await _completed(_lock, descriptor) else None
            yield held
        finally:
            os.close(descriptor)

    def _target(self) -> Path:
        # A symbolic link stays, and the file that it leads to is replaced.
        return Path(os.path.realpath(self._path))


class HeldFile:
    """The file, locked by this process. Implements `HeldStore`."""

    def __init__(self, path: Path, stored: Stored) -> None:
        self._path = path
        self.stored = stored

    async def mark(self, content: bytes) -> None:
        """See `HeldStore`."""
        await self.put(content)

    async def put(self, content: bytes) -> None:
        """See `HeldStore`."""
        with _translated(self._path):
            await _completed(replace_file, self._path, content)
        self.stored = _stored(content)


def _read(path: Path) -> Stored:
    try:
        with path.open("rb") as file:
            return _stored(file.read(_LARGEST) or None)
    except FileNotFoundError:
        return _stored(None)


def _stored(content: bytes | None) -> Stored:
    # A file has no clock that all hosts share.
    return Stored(content, time.time())


def _lock(descriptor: int) -> bool:
    """Lock until the descriptor is closed. Return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _completed(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function in a thread, which ends before this does. Otherwise, a cancelled caller would release the lock too early."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TokenStoreUnavailable(f"{path}: {error.strerror}") from error
