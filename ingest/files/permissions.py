"""Checks which other users may change or read a file, before this process trusts it."""

import os
import stat

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_problem(status: os.stat_result, user: int) -> str | None:
    """Return the reason why a file may contain data of another user, or may be read by one. None for a private file of the user."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid != user:
        return "belongs to another user"
    if status.st_mode & _OTHERS:
        return "may be used by other users"
    return "has another name" if status.st_nlink != 1 else None
