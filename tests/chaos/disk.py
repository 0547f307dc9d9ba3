"""A file system for one folder, whose free space can be taken away. Only root may have one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

_ROOM = "size=50%"


@contextmanager
def disk(folder: Path) -> Iterator[None]:
    """Make the folder a disk until the end of the block, and a folder with the same files again. Without permission, do nothing."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    if CAN_FILL:
        _mount("mode=711", folder)
    try:
        yield
    finally:
        if CAN_FILL:
            kept = folder.with_suffix(".kept")
            subprocess.run(["cp", "--archive", folder, kept], check=False)
            subprocess.run(["umount", "--lazy", folder], check=True)
            folder.rmdir()
            kept.rename(folder)


def fill(folder: Path) -> None:
    """Leave no space."""
    while True:
        found = os.statvfs(folder)
        with suppress(subprocess.CalledProcessError):  # the server has written in between
            return _mount(f"remount,size={(found.f_blocks - found.f_bfree) * found.f_frsize}", folder)


def free(folder: Path) -> None:
    """Undo it."""
    _mount(f"remount,{_ROOM}", folder)


def _mount(options: str, folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True, capture_output=True)


def _can_fill() -> bool:
    with TemporaryDirectory() as folder, suppress(OSError, subprocess.CalledProcessError):
        _mount(_ROOM, Path(folder))
        subprocess.run(["umount", folder], check=True)
        return True
    return False


# Found once, so that the plan contains only faults that are possible.
CAN_FILL = _can_fill()
