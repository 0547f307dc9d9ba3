"""The workers of several sources in one process: started, changed, removed, and opened again after a failure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.virtual_time import now, some_turns, virtual_time

from ingest.domain.errors import ConfigError
from ingest.flow.shutdown import Shutdown
from ingest.services.workers.source_workers import SourceWorkers

Sources = Mapping[str, Any]


class Process:
    """Workers that note when they run. A source with the setting `fails` raises this error when it is opened."""

    def __init__(self) -> None:
        self.shutdown = Shutdown(5.0)
        self.changes: asyncio.Queue[Sources] = asyncio.Queue()
        self.running: set[str] = set()
        self.opened: list[tuple[str, float]] = []
        self.removed: list[str] = []
        self.began_at = now()
        # Seconds that a worker takes to stop.
        self.stopping = 0.0

    def start(self, **sources: Any) -> "asyncio.Task[None]":
        workers = SourceWorkers(self._open, self.shutdown, lambda: None, self)
        return asyncio.create_task(workers.run(_named(sources), self.changes.get))

    async def change(self, **sources: Any) -> None:
        self.changes.put_nowait(_named(sources))
        await some_turns()

    def clear(self, source: str) -> None:
        """The worker of a source has ended."""

    def remove(self, source: str) -> None:
        """A source was removed."""
        self.removed.append(source)

    @asynccontextmanager
    async def _open(self, settings: Any) -> AsyncIterator[Any]:
        self.opened.append((settings.name, round(now() - self.began_at, 1)))
        if settings.fails is not None:
            raise settings.fails
        yield SimpleNamespace(run=self._running(settings.name))

    def _running(self, name: str) -> Callable[[Shutdown], Awaitable[None]]:
        async def run(shutdown: Shutdown) -> None:
            assert name not in self.running
            self.running.add(name)
            await shutdown.requested.wait()
            await asyncio.sleep(self.stopping)
            self.running.remove(name)

        return run


def _named(sources: Sources) -> Sources:
    return {name: SimpleNamespace(**{"name": name, "fails": None, **given}) for name, given in sources.items()}


@virtual_time
async def test_a_source_that_fails_is_opened_again_with_growing_pauses_and_the_others_run() -> None:
    for error in (ConfigError("no certificate"), RuntimeError("a bug")):
        process = Process()
        task = process.start(a={"fails": error}, b={})
        await asyncio.sleep(8.0)

        assert [at for name, at in process.opened if name == "a"] == [0.0, 0.5, 1.5, 3.5, 7.5]
        assert process.running == {"b"}
        process.shutdown.request("test")
        await task


@virtual_time
async def test_the_failure_of_the_unnamed_source_ends_the_process() -> None:
    for error in (ConfigError("no certificate"), RuntimeError("a bug")):
        process = Process()

        with pytest.raises(ExceptionGroup) as raised:
            await process.start(**{"": {"fails": error}})

        assert (raised.value.exceptions, process.opened) == ((error,), [("", 0.0)])


@virtual_time
async def test_a_change_starts_stops_and_restarts_only_the_sources_that_it_concerns() -> None:
    process = Process()
    task = process.start(a={}, b={}, c={})
    await some_turns()
    process.opened.clear()

    await process.change(b={}, c={"value": 1}, d={})

    assert process.running == {"b", "c", "d"}
    assert sorted(name for name, _ in process.opened) == ["c", "d"]
    assert process.removed == ["a"]
    process.shutdown.request("test")
    await task


@virtual_time
async def test_a_source_starts_with_its_last_values_when_its_worker_has_stopped() -> None:
    process = Process()
    process.stopping = 3.0
    task = process.start(a={})
    await some_turns()

    await process.change(a={"value": 1})
    await process.change()
    await process.change(a={"value": 2})
    await asyncio.sleep(2.0)
    before = list(process.opened)
    await asyncio.sleep(5.0)

    assert before == [("a", 0.0)]
    assert process.opened == [("a", 0.0), ("a", 3.0)]
    assert process.running == {"a"}
    assert process.removed == []
    process.shutdown.request("test")
    await task


@virtual_time
async def test_a_stop_of_the_process_stops_all_sources_and_ends_their_grace_period() -> None:
    process = Process()
    first, removed = process.shutdown.part(), process.shutdown.part()
    removed.request("removed")
    before = first.requested.is_set()

    process.shutdown.request("test")
    late = process.shutdown.part()
    requested = [part.requested.is_set() for part in (first, removed, late)]
    await asyncio.sleep(5.1)

    assert (before, requested) == (False, [True, True, True])
    assert all(part.overdue.is_set() for part in (first, removed, late))
