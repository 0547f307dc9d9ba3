"""Redis on a host with a power failure, which loses all data that are in the kernel but not on the disk, or a wrong clock.

A library in the server records how much of each file is on the disk. `cut_unsynced` truncates the append-only file of a
killed server to that length. The library also sets the clock of a program. It is compiled on demand.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from servers.kinds import KINDS, Kind

from ingest.lab.servers import ValkeyServer

_SOURCE = Path(__file__).with_name("host.c")
_folder = TemporaryDirectory(prefix="ingest-")


@cache
def _library() -> Path | None:
    """The library, which is compiled once, or None if that is not possible."""
    library = Path(_folder.name) / "host.so"
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


def noting(kind: Kind, folder: Path) -> Kind:
    """The same kind of server, which starts with the library. Its files are beside the working directory of each server."""
    start = folder / f"{kind.name}.start"
    start.write_text(
        f"""#!/bin/sh
[ -e "$PWD.clock" ] || head -c 4 /dev/zero >"$PWD.clock"
LD_PRELOAD='{_library()}' SYNCED_NOTES="$PWD.notes" HOST_CLOCK="$PWD.clock" exec '{kind.binary}' "$@"
"""
    )
    start.chmod(0o755)
    return replace(kind, binary=start)


def with_clock(file: Path) -> dict[str, str]:
    """The variables with which a program has the clock of this file."""
    set_clock(file, 0)
    return {"LD_PRELOAD": str(_library()), "HOST_CLOCK": str(file)}


def set_clock(file: Path, ahead: int) -> None:
    """Set the clocks of all programs that use this file ahead by these seconds, or behind."""
    file.touch()
    with file.open("r+b") as clock:  # the programs keep it mapped
        clock.write(ahead.to_bytes(4, sys.byteorder, signed=True))


def cut_unsynced(server: ValkeyServer) -> int:
    """Truncate the append-only file of a killed server to what is on the disk, and return the number of lost bytes."""
    on_disk = dict(line.split() for line in _notes_of(server.directory).read_text().splitlines())
    lost = 0
    for file in server.directory.glob("appendonlydir/*.incr.aof"):
        status = file.stat()
        length = min(status.st_size, int(on_disk.get(str(status.st_ino), 0)))
        lost += status.st_size - length
        with file.open("r+b") as opened:
            opened.truncate(length)
    return lost


def _notes_of(directory: Path) -> Path:
    return directory.with_suffix(".notes")


class Host:
    """A server with an append-only file, and its power.

    Attributes:
        server: the server.
    """

    def __init__(self, folder: Path, kind: Kind, appendfsync: str) -> None:
        self.server = noting(kind, folder).server(folder / "server", appendonly="yes", appendfsync=appendfsync)

    def lose_power(self) -> int:
        """End the server as in a power failure, start it again, and return the number of lost bytes."""
        self.server.kill()
        lost = cut_unsynced(self.server)
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
