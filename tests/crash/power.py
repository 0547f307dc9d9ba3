"""Redis on a host with a power failure, which loses all data that are in the kernel but not on the disk.

A library in the server records how much of each file is on the disk. `lose_power` kills the server and truncates its
append-only file to that length. The library is compiled on demand.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from servers.kinds import KINDS, Kind

_SOURCE = Path(__file__).with_name("synced.c")
_folder = TemporaryDirectory(prefix="ingest-")


@cache
def _library() -> Path | None:
    """The library, which is compiled once, or None if that is not possible."""
    library = Path(_folder.name) / "synced.so"
    compiler = shutil.which("cc") or "cc"
    try:
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return library


def _is_possible(kind: Kind) -> bool:
    """Whether the library can be loaded into that server."""
    if (library := _library()) is None:
        return False
    notes = Path(_folder.name) / f"{kind.name}.notes"
    subprocess.run([kind.binary, "--version"], env=_environment(library, notes), capture_output=True, check=False)
    return notes.exists()


def _environment(library: Path, notes: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library), "SYNCED_NOTES": str(notes), "PATH": "/usr/bin:/bin"}


class Host:
    """A server with an append-only file, and its power.

    Attributes:
        server: the server.
    """

    def __init__(self, folder: Path, kind: Kind, appendfsync: str) -> None:
        self._notes = folder / "notes"
        start = folder / "start"
        library = _library()
        assert library is not None
        variables = " ".join(f"{name}='{value}'" for name, value in _environment(library, self._notes).items())
        start.write_text(f"#!/bin/sh\n{variables} exec '{kind.binary}' \"$@\"\n")
        start.chmod(0o755)
        self.server = replace(kind, binary=start).server(folder / "server", appendonly="yes", appendfsync=appendfsync)

    def lose_power(self) -> int:
        """End the server as in a power failure, start it again, and return the number of lost bytes."""
        self.server.kill()
        on_disk = dict(line.split() for line in self._notes.read_text().splitlines())
        lost = 0
        for file in self.server.directory.glob("appendonlydir/*.incr.aof"):
            status = file.stat()
            length = min(status.st_size, int(on_disk.get(str(status.st_ino), 0)))
            lost += status.st_size - length
            with file.open("r+b") as opened:
                opened.truncate(length)
        self.server.start()
        return lost


@contextmanager
def host(kind: Kind, appendfsync: str) -> Iterator[Host]:
    """A host with a running server."""
    with TemporaryDirectory(prefix="ingest-") as folder:
        found = Host(Path(folder), kind, appendfsync)
        with found.server:
            yield found


# Found once, when tests are collected, so that none is skipped.
POWERED = [kind for kind in KINDS if _is_possible(kind)]
