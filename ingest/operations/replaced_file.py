"""Changes a small file that other processes read: they find the one before or the one after, also if a process dies here.

A process that changes what is in the file holds the lock of its folder: a lock of the file itself would be one of a file that is
being replaced.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Who else may read a file that is replaced, is for its owner to decide; nobody else may write it.
_READERS = 0o644


class SymbolicLink(Exception):
    """The file is a symbolic link, which replacing it would remove."""


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Hold the lock for changes of a file; waits for others that do.

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
    """Write the file under another name, then give it its own; only its owner may read a file that is created.

    Raises:
        OSError: and then the file is as before.
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
    """The API, which may be another user, has to be able to read the new file as it could the one before."""
    try:
        before = path.lstat()
    except FileNotFoundError:
        return
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & _READERS)


def _keep_name(folder: Path) -> None:
    """Write the folder to the disk, with the file's new place; where a file system cannot, it is done all the same."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
