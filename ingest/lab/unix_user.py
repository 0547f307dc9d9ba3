"""The unprivileged user that runs PostgreSQL when root starts it, because PostgreSQL does not run as root.

That user may not have access to the folder of the virtual environment. Instead of changing the folder's
permissions, the needed files are placed in a separate directory, as hard links if possible, or else as copies.
"""

import os
import pwd
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ingest.lab.errors import ServerError


@dataclass(frozen=True, slots=True)
class UnixUser:
    """A user and its main group, by number."""

    uid: int
    gid: int

    def may_read(self, path: Path) -> bool:
        """Whether the permission bits allow it to read a file and to enter all directories above the file."""
        path = path.resolve()
        return self._may(path, stat.S_IROTH) and self.may_enter(path.parent)

    def may_enter(self, folder: Path) -> bool:
        """Whether the permission bits allow it to enter a directory and all directories above."""
        folder = folder.resolve()
        return all(self._may(step, stat.S_IXOTH) for step in (folder, *folder.parents))

    def _may(self, path: Path, bit: int) -> bool:
        status = path.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & (bit << 6))
        if status.st_gid == self.gid:
            return bool(status.st_mode & (bit << 3))
        return bool(status.st_mode & bit)


def unprivileged_user() -> UnixUser | None:
    """The user `nobody` if the current user is root, else None for the current user."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError as error:
        raise ServerError("PostgreSQL cannot run as root, and there is no user 'nobody' to run it as") from error
    return UnixUser(entry.pw_uid, entry.pw_gid)


def lend(files: Iterable[Path], *, base: Path, to: Path) -> None:
    """Place `files` (below `base`) below `to`, readable by all users with access to that directory."""
    made: set[Path] = set()
    for file in files:
        target = to / file.relative_to(base)
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        _link_or_copy(file, target)
    for folder, _, _ in os.walk(to):
        Path(folder).chmod(0o755)  # independent of the umask


def _link_or_copy(file: Path, target: Path) -> None:
    mode = file.stat().st_mode
    if mode & stat.S_IROTH:
        try:
            target.hardlink_to(file.resolve())
        except OSError:
            pass  # another file system, or a file system without links
        else:
            return
    # A link shares its permissions with the original, so that a private file has to be copied.
    shutil.copyfile(file, target)
    target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
