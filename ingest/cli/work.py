"""What `ingest worker` does with its settings: it runs the processes, or hands the settings to the process that does."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.settings import Settings

Work = Callable[["Settings", Sequence[str]], int]
"""Takes the settings and a line for each unknown one, and returns the exit code."""


def work_here(settings: "Settings", unknown: Sequence[str]) -> int:
    """Run the processes from this one."""
    from ingest.services.worker import run_worker
    from ingest.telemetry.logs import begin_logs

    begin_logs(settings.log_format, settings.log_level, unknown)
    return run_worker(settings)
