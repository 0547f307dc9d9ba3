"""Runs a worker for each source of a process, so that a failure or a change of one source does not touch the others.

The failure of the unnamed source, which is the only one, ends the process. Any other is opened again after a pause, under the same consumer
name. Its entries stay pending in Redis until then, or until other
processes reclaim them because its heartbeat has ended. If the process dies here, the same happens to all of its sources.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Protocol

import msgspec

from ingest.domain.errors import UserError
from ingest.domain.exponential_pause import exponential_pause
from ingest.domain.source_name import UNNAMED
from ingest.flow.shutdown import Shutdown
from ingest.flow.worker import Worker
from ingest.process.lifecycle import problems_of, unless
from ingest.telemetry.activity import record_activity
from ingest.telemetry.logs import bound_source, get_logger

if TYPE_CHECKING:
    from ingest.settings import Settings

_log = get_logger("sources")

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# A source that has run this long counts as healthy. Its next failure is again treated as the first.
_HEALTHY_AFTER = 60.0

OpenWorker = Callable[["Settings"], AbstractAsyncContextManager[Worker]]
Changed = Callable[[], Awaitable[Mapping[str, "Settings"]]]


class SourceMetrics(Protocol):
    """The metrics of the sources of one process."""

    def clear(self, source: str) -> None:
        """The worker of a source has ended, and will be started again."""

    def remove(self, source: str) -> None:
        """A source was removed."""


class _Running(msgspec.Struct, frozen=True):
    """A source with its settings, or None if it was removed and is about to end."""

    settings: "Settings | None"
    shutdown: Shutdown
    task: asyncio.Task[None]


class SourceWorkers:
    """The workers of one process.

    Args:
        open_worker: opens the worker of a source, given its settings.
        shutdown: of the process.
        on_open: called whenever a source is open.
        metrics: of the sources in this process.
    """

    def __init__(
        self,
        open_worker: OpenWorker,
        shutdown: Shutdown,
        on_open: Callable[[], None],
        metrics: SourceMetrics,
    ) -> None:
        self._open_worker = open_worker
        self._shutdown = shutdown
        self._on_open = on_open
        self._metrics = metrics
        self._running: dict[str, _Running] = {}

    async def run(self, sources: "Mapping[str, Settings]", changed: Changed) -> None:
        """Run the workers of these sources until a stop is requested.

        Args:
            sources: at the start.
            changed: waits until some have changed, and returns all.
        """
        async with asyncio.TaskGroup() as tasks:
            self._apply(sources, tasks)
            following = tasks.create_task(self._follow(changed, tasks))
            await self._shutdown.requested.wait()
            following.cancel()

    async def _follow(self, changed: Changed, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._apply(await changed(), tasks)

    def _apply(self, sources: "Mapping[str, Settings]", tasks: asyncio.TaskGroup) -> None:
        """Start added sources, and stop removed ones. A changed one is started when its worker has stopped."""
        for name, running in self._running.items():
            if running.settings is not None and name not in sources:
                running.shutdown.request(f"the source {name} was removed")
                self._running[name] = msgspec.structs.replace(running, settings=None)
        for name, settings in sources.items():
            before = self._running.get(name)
            if before is not None and before.settings == settings:
                continue
            if before is not None and before.settings is not None:
                before.shutdown.request(f"{f'the source {name}' if name else 'the source'} has changed")
            shutdown = self._shutdown.part()
            keeping = self._keep_running(name, settings, shutdown, before.task if before is not None else None)
            self._running[name] = _Running(settings, shutdown, tasks.create_task(keeping))

    async def _keep_running(
        self, name: str, settings: "Settings", shutdown: Shutdown, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        failures = 0
        with bound_source(name):
            while not shutdown.requested.is_set():
                started_at = time.monotonic()
                try:
                    await self._run(settings, shutdown)
                except Exception as error:  # a bug in one source must not stop the others
                    if name == UNNAMED:
                        raise
                    failures = 1 if time.monotonic() - started_at > _HEALTHY_AFTER else failures + 1
                    pause = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, failures - 1)
                    record_activity()
                    _log_failure(error, pause)
                    await shutdown.pause(pause)
                finally:
                    self._metrics.clear(name)
        if self._running[name].settings is None:
            self._metrics.remove(name)

    async def _run(self, settings: "Settings", shutdown: Shutdown) -> None:
        async with AsyncExitStack() as stack:
            worker = await unless(shutdown.requested, stack.enter_async_context(self._open_worker(settings)))
            if worker is not None:
                self._on_open()
                await _run_until_tuned(worker, shutdown)


async def _run_until_tuned(worker: Worker, shutdown: Shutdown) -> None:
    """Run a worker until a stop is requested, or until an operator has changed its limits, with which it is opened again."""
    part = shutdown.part()

    async def request_when_tuned() -> None:
        await worker.tuned.wait()
        part.request("its limits have changed")

    watching = asyncio.create_task(request_when_tuned())
    try:
        await worker.run(part)
    finally:
        watching.cancel()


def _log_failure(error: Exception, pause: float) -> None:
    """Log the problem of an operator in one line, and a bug with its traceback."""
    users, bugs = ExceptionGroup("", [error]).split(UserError)
    if users is None or bugs is not None:
        _log.error("source_failed", problem=repr(error), retry_in=pause, exc_info=error)
    else:
        _log.error("source_failed", problem="; ".join(problems_of(users)), retry_in=pause)
