"""Checks which other users may change or read a file, before this process trusts it."""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ROOT = 0


class NotTrusted(PermissionError):
    """Another user may change a file. The attribute `strerror` contains the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(None, f"{reason}, so that it is not trusted", str(path))


def require_trusted(path: Path) -> None:
    """Require that only root and the user of this process may change a file or a folder, or replace it.

    A part on a read-only mount is trusted whatever its owner, such as a secret of a container.

    Raises:
        NotTrusted: Another user may change it, or one of the folders above it.
        OSError: It does not exist, or cannot be examined.
    """
    named, final = Path(os.path.abspath(path)), Path(os.path.realpath(path))  # noqa: PTH100  `resolve` would follow links
    for part in [path, *{*named.parents, *final.parents}]:
        problem = problem_of(part.stat(), os.geteuid(), is_above=part != path)
        if problem is not None and not os.statvfs(part).f_flag & os.ST_RDONLY:
            raise NotTrusted(path, f"{'it' if part == path else f'the folder {part}'} {problem}")


def problem_of(status: os.stat_result, user: int, *, is_above: bool) -> str | None:
    """Return the reason why a file or folder is not trusted by a user, or None.

    Args:
        status: of the file or folder.
        user: number of the user.
        is_above: whether it is a folder above the trusted file. If it is sticky, other users can only replace their own files.
    """
    if status.st_uid not in {_ROOT, user}:
        return f"belongs to another user ({status.st_uid})"
    if is_above and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return "may be changed by every user"
    # Many systems give each user a group with the same number and no other member.
    if status.st_mode & stat.S_IWGRP and status.st_gid not in {_ROOT, status.st_uid}:
        return f"may be changed by the group {status.st_gid}"
    return None


def private_problem(status: os.stat_result, user: int) -> str | None:
    """Return the reason why a file may contain data of another user, or may be read by one. None for a private file of the user."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid != user:
        return "belongs to another user"
    if status.st_mode & _OTHERS:
        return "may be used by other users"
    return "has another name" if status.st_nlink != 1 else None
