"""A Docker engine of Debian's package, with everything it keeps in the work folder."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.machine import WORK
from deploy.shell import CommandFailed, Done, attempt, run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Debian's client, because another client on PATH could be too new for the engine.
_CLIENT = "/usr/bin/docker"
_ENGINE = "/usr/sbin/dockerd"
_STARTS_WITHIN = 30.0


@dataclass(frozen=True)
class Docker:
    """The engine's client."""

    socket: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment for clients of the engine, without other variables of this machine."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(WORK),
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_BUILDKIT": "1",
            "BUILDKIT_PROGRESS": "plain",
        }

    def __call__(self, *arguments: str | Path, stdin: str = "", cwd: Path | None = None) -> str:
        """Run a command of the client that has to succeed, and return its output."""
        return run(_CLIENT, *arguments, stdin=stdin, env=self.env, cwd=cwd)

    def attempt(self, *arguments: str | Path, within: float = 60) -> Done:
        """Run a command of the client with any exit code."""
        return attempt(_CLIENT, *arguments, env=self.env, within=within)

    def inspect(self, name: str) -> dict[str, Any]:
        """The engine's data about a container or an image."""
        return dict(json.loads(self("inspect", name))[0])


@contextmanager
def engine() -> Iterator[Docker]:
    """Start the engine. `machine.restore` stops it, and it ends if this process ends."""
    log = WORK / "dockerd.log"
    socket = WORK / "docker.sock"
    command: list[str | Path] = ["setpriv", "--pdeathsig", "TERM", _ENGINE, "--host", f"unix://{socket}"]
    command += ["--data-root", WORK / "data", "--exec-root", WORK / "exec", "--pidfile", WORK / "docker.pid"]
    # Compose creates its own networks, and builds use the machine's.
    command += ["--bridge", "none"]
    with log.open("w") as output:
        # In a separate session, so that Ctrl-C does not end the engine before the cleanup.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    docker = Docker(socket)

    def answers() -> bool:
        if process.poll() is not None:
            raise CommandFailed("dockerd does not start:\n" + "\n".join(log.read_text().splitlines()[-10:]))
        return socket.exists() and docker.attempt("version").code == 0

    try:
        wait_for("dockerd answers", answers, within=_STARTS_WITHIN)
        yield docker
    finally:
        process.terminate()
        process.wait()
