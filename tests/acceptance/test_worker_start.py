"""The start of `ingest worker`, in which one process reads the command line and the settings, and another runs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

RUN = "import sys; sys.argv = ['ingest', 'worker', '--metrics-port', '0']; import ingest.__main__ as m\n"
NO_SERVER = {"INGEST_POSTGRES_DSN": "postgresql://127.0.0.1:1/none", "INGEST_REDIS_URL": "redis://127.0.0.1:1/0"}


def test_the_process_that_runs_has_not_imported_what_reads_settings(tmp_path: Path) -> None:
    modules = modules_of_worker(tmp_path, {})

    assert "ingest.services.worker" in modules
    assert modules.isdisjoint({"pydantic", "pydantic_settings", "typer", "ingest.cli"})


@pytest.mark.parametrize("proxy", [{}, {"http_proxy": "http://127.0.0.1:1"}], ids=["direct", "proxy"])
def test_what_sends_requests_through_a_proxy_is_imported_only_for_one(tmp_path: Path, proxy: dict[str, str]) -> None:
    modules = modules_of_worker(tmp_path, {"INGEST_UPSTREAM_URL": "http://api.example/{order_id}", **proxy})

    assert ("aiohttp" in modules) == bool(proxy)


def test_if_the_process_that_reads_the_settings_is_killed_the_command_says_so(tmp_path: Path) -> None:
    fifo = tmp_path / "token"
    os.mkfifo(fifo)
    worker = started(tmp_path, f"{RUN}m.main()", {"INGEST_UPSTREAM_TOKEN_FILE": str(fifo)})

    # It reads as soon as it has opened the other end.
    with fifo.open("wb"):
        [reader] = psutil.Process(worker.pid).children()
        reader.kill()
        errors = worker.communicate(timeout=60)[1]

    assert worker.returncode == 1
    assert errors == "ingest: the process that reads the settings was killed by SIGKILL\n"


def test_it_starts_below_a_program_that_ignores_the_end_of_its_children(tmp_path: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    worker = started(tmp_path, f"{ignoring}{RUN}m.main()", {})

    assert "unavailable" in said(worker)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"INGEST_CONCURRENCY": "0"}, "INGEST_CONCURRENCY: input should be greater than 0 (got '0')"),
        (
            {"INGEST_UPSTREAM_TOKEN_FILE": "/nowhere"},
            "INGEST_UPSTREAM_TOKEN_FILE: cannot read /nowhere: No such file or directory",
        ),
    ],
)
def test_an_invalid_setting_is_one_line(tmp_path: Path, settings: dict[str, str], line: str) -> None:
    worker = started(tmp_path, f"{RUN}m.main()", settings)

    output, errors = worker.communicate(timeout=60)

    assert (worker.returncode, output, errors) == (2, "", f"ingest: {line}\n")


def test_an_unknown_setting_is_a_warning(tmp_path: Path) -> None:
    worker = started(tmp_path, f"{RUN}m.main()", {"INGEST_CONCURENCY": "5"})

    line = said(worker)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)

    assert "did you mean INGEST_CONCURRENCY?" in line


def test_a_second_ctrl_c_while_the_first_one_is_handled_is_one_line(tmp_path: Path) -> None:
    # The first signal arrives while the process imports the worker, and the second while it imports the stop message.
    program = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "ingest.services.worker":
            raise KeyboardInterrupt
        if name == "ingest.cli.terminal.width":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""
    worker = started(tmp_path, f"{program}{RUN}m.main()", {})
    errors = worker.communicate(timeout=60)[1]

    assert (worker.returncode, errors) == (130, "stopped\n")


def modules_of_worker(home: Path, settings: dict[str, str]) -> set[str]:
    """The modules of a worker that waits for its servers, before it forks."""
    worker = started(home, f"{RUN}try: m.main()\nfinally: print(*sys.modules)", settings)
    assert "unavailable" in said(worker)
    worker.send_signal(signal.SIGTERM)
    modules = worker.communicate(timeout=60)[0].split()
    assert worker.returncode == 0
    return set(modules)


def started(home: Path, code: str, settings: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=home,
        env={**os.environ, **NO_SERVER, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(worker: subprocess.Popen[str]) -> str:
    assert worker.stderr is not None
    return worker.stderr.readline()
