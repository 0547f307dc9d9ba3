"""Replaces a small file atomically. Readers find the old or the new content, even if a process dies here.

A writer holds a lock on the folder, because a lock on the file would be lost when the file is replaced.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# The owner decides which users may read the file. Only the owner may write it.
_READERS = 0o644


class SymbolicLink(Exception):
    """The file is a symbolic link, which a replacement would remove."""


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Hold the lock for changing a file. Waits for other writers.

    Raises:
        OSError: the folder cannot be used.
        SymbolicLink: the file cannot be replaced.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if path.is_symlink():
            raise SymbolicLink
        yield
    finally:
        os.close(folder)


def replace_file(path: Path, content: bytes) -> None:
    """Write the content to a temporary file, then rename it. A new file is readable only by its owner.

    Raises:
        OSError: the file is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _keep_owner(path, descriptor)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
        _keep_name(path.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _keep_owner(path: Path, descriptor: int) -> None:
    """Keep owner and permissions, so that the order-ingest API can still read the file if it runs as another user."""
    try:
        before = path.lstat()
    except FileNotFoundError:
        return
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & _READERS)


def _keep_name(folder: Path) -> None:
    """Write the folder to the disk, so that the rename is durable. File systems that cannot are ignored."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
