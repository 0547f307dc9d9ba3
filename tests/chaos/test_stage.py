"""What a chaos run strikes is what it says it strikes."""

import os
from pathlib import Path

import psutil
from support import eventually_sync

from chaos.stage import WorkerCommand
from ingest.lab.watchdog import Watchdog

# The process that reads the settings imports this, and waits there until somebody writes.
_WAITING = """
import sys

class Waiting:
    def find_spec(self, name, path=None, target=None):
        if name == "pydantic_settings":
            open("gate").read()

sys.meta_path.insert(0, Waiting())
"""


def test_the_process_that_reads_the_settings_at_the_start_is_no_worker_process(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_WAITING)
    os.mkfifo(tmp_path / "gate")

    with Watchdog() as watchdog:
        command = WorkerCommand(
            "worker",
            home=tmp_path,
            log=tmp_path / "worker.log",
            watchdog=watchdog,
            environment={"PYTHONPATH": str(tmp_path)},
        )
        try:
            eventually_sync(lambda: psutil.Process(command.pid).children())

            assert command.children() == []
        finally:
            command.kill()
