"""Keeps the temporary files of a test run in memory if the system supports that.

A new database for each test consists of about 300 small files, which take several times as much CPU time on a disk as
in memory. Tests kill processes and never the machine, so that confirmed writes survive as on a disk.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")  # Linux
_NEEDED_BYTES = 4 << 30
_PREFIX = "ingest-tests-"


def use_for_temporary_files() -> Path | None:
    """Use a folder in memory for temporary files, including child processes, or return None if that is not possible.

    Folders of previous test runs that were not removed are removed.
    """
    if not _is_suitable() or Path(tempfile.gettempdir()).is_relative_to(_MEMORY):
        return None
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        if folder.stat().st_uid == os.getuid() and _lock(folder):
            remove(folder)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_MEMORY))
    _lock(folder)
    folder.chmod(0o755)  # PostgreSQL runs as `nobody` if the tests run as root
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def remove(folder: Path) -> None:
    """Remove the folder with all that is in it."""
    shutil.rmtree(folder, ignore_errors=True)


def _is_suitable() -> bool:
    """Whether there is enough memory for files, and programs may be run from there."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    is_limited = bool(found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY))
    return not is_limited and found.f_bavail * found.f_frsize >= _NEEDED_BYTES and os.access(_MEMORY, os.W_OK)


def _lock(folder: Path) -> bool:
    """Mark the folder as used until this process ends, or return false if another process uses it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True
