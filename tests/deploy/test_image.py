"""The image by itself, without the system."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from deploy.shell import say, wait_for
from deploy.standins import PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deploy.build import Built
    from deploy.engine import Docker

_MOST_MEGABYTES = 120
# A stop that has to wait for the engine's SIGKILL takes ten.
_PROMPT = 5.0


@pytest.fixture
def start(docker: Docker, built: Built) -> Iterator[Callable[..., str]]:
    """Starts an isolated container of the image in the background, which is removed at the end."""
    started: list[str] = []

    def start(*arguments: str, options: tuple[str, ...] = ()) -> str:
        started.append(docker("run", "--detach", "--network", "none", *options, built.name, *arguments).strip())
        return started[-1]

    yield start
    docker("rm", "--force", "--volumes", *started)


def test_it_adds_little_to_its_base(docker: Docker, built: Built) -> None:
    own = (docker.inspect(built.name)["Size"] - docker.inspect(PYTHON)["Size"]) / 1e6

    say(f"the image's own layers have {own:.1f} MB")
    assert own < _MOST_MEGABYTES


def test_nothing_of_the_pip_configuration_is_stored(docker: Docker, built: Built) -> None:
    layers = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", built.name)
    command = ["sh", "-c", 'docker save "$1" | grep --text --count "$2"', "sh", built.name, built.secret]
    found = subprocess.run(command, env=docker.env, capture_output=True, text=True, check=False).stdout.strip()
    listing = docker("run", "--rm", "--network", "none", "--entrypoint", "python", built.name, "-c", _FIND_PIP_CONF)

    assert built.secret not in layers
    assert found == "0"
    assert listing.strip() == "[]"


_FIND_PIP_CONF = """
import pathlib
print([str(path) for top in ("etc", "opt", "root", "home", "src") for path in pathlib.Path("/", top).rglob("pip.conf")])
"""


def test_it_runs_as_process_1_of_an_unprivileged_user_on_a_read_only_filesystem(
    docker: Docker, start: Callable[..., str]
) -> None:
    container = start("worker", options=("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"))

    _wait_until_logged(docker, container, "postgres")

    processes = docker("top", container, "-eo", "uid,pid,args").splitlines()[1:]
    assert [row.split()[0] for row in processes] == ["10001"]
    first = docker("exec", container, "python", "-c", "print(open('/proc/1/cmdline').read())")
    assert "/opt/ingest/bin/ingest\0worker" in first
    assert docker.inspect(container)["State"]["Running"]


def test_it_writes_nothing_even_where_it_could(docker: Docker, start: Callable[..., str]) -> None:
    worker = start("worker")
    others = [start("config"), start("--help"), start("enqueue", "--help"), start("upstream")]
    _wait_until_logged(docker, worker, "postgres")
    _wait_until_logged(docker, others[-1], "ready")

    docker("stop", worker, others[-1])

    assert [docker("diff", container) for container in [worker, *others]] == [""] * 5
    assert [docker.inspect(container)["State"]["ExitCode"] for container in [worker, *others]] == [0] * 5


def test_a_one_shot_command_ends_at_once_when_it_is_stopped(docker: Docker, start: Callable[..., str]) -> None:
    container = start("enqueue", "536365")  # waits, because there is no Redis
    _wait_until_logged(docker, container, "trying again")

    began = time.monotonic()
    docker("stop", container)

    assert time.monotonic() - began < _PROMPT
    assert docker.inspect(container)["State"]["ExitCode"] == 128 + 15


def test_its_health_check_says_when_nobody_answers(docker: Docker, built: Built) -> None:
    done = docker.attempt("run", "--rm", "--network", "none", built.name, "health")

    assert (done.code, done.out) == (1, "")
    assert "no response from 127.0.0.1:9464" in done.err
    assert docker.inspect(built.name)["Config"]["Healthcheck"]["Test"] == ["CMD", "ingest", "health"]


def _wait_until_logged(docker: Docker, container: str, text: str) -> None:
    wait_for(f"it has logged {text!r}", lambda: text in docker.attempt("logs", container).err, within=30)
