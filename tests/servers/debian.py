"""Gets servers from the distribution's packages, unpacked into a folder with their libraries and without installation.

An installed server with a suitable version is used directly.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_START = """#!/bin/sh
# Made by tests/servers/get.py: a server that was unpacked and not installed, with the libraries it needs.
here=$(dirname "$0")
LD_LIBRARY_PATH={libraries}
export LD_LIBRARY_PATH
exec "$here/{program}" "$@"
"""
# Compiles queries, which takes 100 MB and is not needed.
_NOT_NEEDED = "libllvm"


class NotHereError(Exception):
    """A server is not available on this machine. The message contains the reason in one line."""


def unpack(new: Path, run: Callable[..., None], packages: Sequence[str], programs: Sequence[str]) -> None:
    """Unpack `packages`, with the libraries that are not installed, into the folder `new`.

    Args:
        new: an empty folder, in which each of `programs` can then be started by its name.
        run: runs a command, and raises `NotHereError` if that fails.
        packages: names of the packages.
        programs: paths of the programs in the packages.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NotHereError("it is not installed, and there is no apt-get to fetch it")
    downloaded = new.with_name("packages")
    downloaded.mkdir()
    try:
        _download(downloaded, run, packages, [])
    except NotHereError:
        # Separate package lists, because the system's are missing or outdated and must not be changed.
        lists = _own_lists(new.with_name("apt"))
        run("apt-get", *lists, "update")
        _download(downloaded, run, packages, lists)
    for package in downloaded.glob("*.deb"):
        run("dpkg-deb", "--extract", package, new)
    libraries = {f'"$here/{library.parent.relative_to(new)}"' for library in new.glob("**/*.so*")}
    for program in programs:
        start = new / program.rpartition("/")[2]
        start.write_text(_START.format(libraries=":".join(sorted(libraries)), program=program))
        start.chmod(0o755)


def install(run: Callable[..., None], packages: Sequence[str]) -> None:
    """Install `packages`, which needs root, and wait for another process that installs packages."""
    if not shutil.which("apt-get"):
        raise NotHereError("it is not installed, and there is no apt-get to install it")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-oDPkg::Lock::Timeout=120", "--yes", "--no-install-recommends", "install", *packages]
    try:
        run(*command, env=quiet)
    except NotHereError:
        # The system's package lists are missing or outdated.
        run("apt-get", "-oAPT::Sandbox::User=root", "update")
        run(*command, env=quiet)


def _own_lists(folder: Path) -> list[str]:
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    return [
        f"-oDir::State::Lists={folder / 'lists'}", f"-oDir::Cache={folder / 'cache'}",
        "-oDebug::NoLocking=true", "-oAPT::Sandbox::User=root",
    ]  # fmt: skip


def _download(folder: Path, run: Callable[..., None], packages: Sequence[str], lists: list[str]) -> None:
    names = [*packages, *_missing_libraries(packages, lists)]
    run("apt-get", *lists, "-oAPT::Sandbox::User=root", "download", *names, cwd=folder)


def _missing_libraries(packages: Sequence[str], lists: list[str]) -> list[str]:
    """The libraries that these packages need, those that these need, and so on, as far as they are not installed."""
    missing: list[str] = []
    asked = list(packages)
    while asked:
        command = ["apt-cache", *lists, "depends", *asked]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        named = re.findall(r"^[ |]+Depends: (lib\S+)$", told, re.MULTILINE)
        asked = [
            name
            for name in dict.fromkeys(named)
            if name not in missing and not name.startswith(_NOT_NEEDED) and not _is_installed(name)
        ]
        missing += asked
    return missing


def _is_installed(package: str) -> bool:
    asked = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\n", package]
    return "installed" in subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
