"""Builds the bare loop in Go (the folder `go` next to this file) if a Go toolchain is on PATH, once for each version.

The program is kept in `~/.cache/order-ingest/bench`, or below XDG_CACHE_HOME. Its name contains a hash of the sources
and of Go's version.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ingest.bench.errors import BenchFailed
from ingest.bench.trial import report_progress
from ingest.domain.errors import ConfigError

SOURCES = Path(__file__).with_name("go")

_TAIL_LINES = 10
# Without a C compiler and without a workspace around the sources.
_SETTINGS = {"CGO_ENABLED": "0", "GOWORK": "off"}
# Only modules in go.sum, and no paths of this folder in the program.
_OPTIONS = ("-mod=readonly", "-trimpath", "-buildvcs=false")


def check_toolchain() -> str:
    """Return the path of `go`.

    Raises:
        ConfigError: `go` is not on PATH.
    """
    go = shutil.which("go")
    if go is None:
        raise ConfigError("--vs go needs a Go toolchain (go) on PATH")
    return go


def built_program() -> Path:
    """Return the path of the program, and build it if it does not exist.

    Raises:
        ConfigError: there is no Go toolchain.
        BenchFailed: the build failed.
    """
    go = check_toolchain()
    program = _program(go)
    if not program.exists():
        report_progress("building the bare loop in Go ...")
        program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            # Other processes may build it concurrently, and the last one replaces the program.
            _run(go, "build", *_OPTIONS, "-o", f"{folder}/{program.name}", ".")
            (Path(folder) / program.name).replace(program)
    return program


def is_built() -> bool:
    """Return whether there is a Go toolchain that has built the program before."""
    go = shutil.which("go")
    return go is not None and _program(go).exists()


def _program(go: str) -> Path:
    return _cache() / f"bare-go-{_key(go)}"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "order-ingest" / "bench"


def _key(go: str) -> str:
    found = hashlib.sha256(_run(go, "version").encode())
    for source in sorted(SOURCES.iterdir()):
        found.update(f"\0{source.name}\0".encode() + source.read_bytes())
    return found.hexdigest()[:16]


def _run(go: str, *arguments: str) -> str:
    done = subprocess.run(
        [go, *arguments],
        cwd=SOURCES,
        env={**os.environ, **_SETTINGS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(f"    {line}" for line in done.stderr.splitlines()[-_TAIL_LINES:])
        raise BenchFailed(f"`go {arguments[0]}` failed with exit code {done.returncode}:\n{tail}")
    return done.stdout
