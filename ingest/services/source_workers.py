"""Runs a worker for each source of a process, so that a failure of one source does not end the others.

A source that fails is opened again after a pause, under the same consumer name: its entries stay pending in Redis until then, or until other
processes reclaim them because its heartbeat has ended. If the process dies here, the same happens to all of its sources.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from structlog.contextvars import bound_contextvars

from ingest.domain.errors import UserError
from ingest.flow.shutdown import Shutdown
from ingest.flow.worker import Worker
from ingest.process.lifecycle import unless
from ingest.services.configured_sources import ConfiguredSource
from ingest.telemetry.activity import record_activity
from ingest.telemetry.logs import get_logger

_log = get_logger("sources")

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# A source that has run this long counts as healthy. Its next failure is again treated as the first.
_HEALTHY_AFTER = 60.0

OpenWorker = Callable[[ConfiguredSource], AbstractAsyncContextManager[Worker]]


class SourceWorkers:
    """The workers of one process.

    Args:
        open_worker: opens the worker of a source.
        shutdown: of the process.
        on_open: called whenever a source is open.
    """

    def __init__(self, open_worker: OpenWorker, shutdown: Shutdown, on_open: Callable[[], None]) -> None:
        self._open_worker = open_worker
        self._shutdown = shutdown
        self._on_open = on_open

    async def run(self, sources: Mapping[str, ConfiguredSource]) -> None:
        """Run the workers of these sources until a stop is requested."""
        async with asyncio.TaskGroup() as tasks:
            for name, source in sources.items():
                tasks.create_task(self._keep_running(name, source, self._shutdown.part()))

    async def _keep_running(self, name: str, source: ConfiguredSource, shutdown: Shutdown) -> None:
        failures = 0
        with bound_contextvars(source=name):
            while not shutdown.requested.is_set():
                started_at = time.monotonic()
                try:
                    await self._run(source, shutdown)
                except Exception as error:  # noqa: BLE001  a bug in one source must not stop the others
                    failures = 1 if time.monotonic() - started_at > _HEALTHY_AFTER else failures + 1
                    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures - 1, 10))
                    record_activity()
                    _log_failure(error, pause)
                    await shutdown.pause(pause)

    async def _run(self, source: ConfiguredSource, shutdown: Shutdown) -> None:
        async with AsyncExitStack() as stack:
            worker = await unless(shutdown.requested, stack.enter_async_context(self._open_worker(source)))
            if worker is not None:
                self._on_open()
                await worker.run(shutdown)


def _log_failure(error: Exception, pause: float) -> None:
    """Log the problem of an operator in one line, and a bug with its traceback."""
    problems = _problems(error)
    if problems is None:
        _log.error("source_failed", problem=repr(error), retry_in=pause, exc_info=error)
    else:
        _log.error("source_failed", problem="; ".join(problems), retry_in=pause)


def _problems(error: Exception) -> list[str] | None:
    """Return the problems if only an operator can solve them, or None for a bug."""
    if isinstance(error, ExceptionGroup):
        users, bugs = error.split(UserError)
        if bugs is not None or users is None:
            return None
        found = [_problems(each) for each in users.exceptions]
        return [problem for problems in found for problem in problems or ()]
    return [str(error)] if isinstance(error, UserError) else None
