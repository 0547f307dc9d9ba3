"""Runs a backfill in this process, with progress."""

import json
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import typer
from msgspec.structs import asdict

from ingest.cli.invocation import actor, holder, say
from ingest.cli.queues.bulk import open_parts, run_held
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted, printable
from ingest.cli.terminal.times import format_time
from ingest.domain.operating.backfill import BackfillProgress, BackfillRequest
from ingest.domain.operating.jobs import Job, JobProgress, JobState
from ingest.operations import jobs as operations
from ingest.operations.backends import Backends
from ingest.operations.jobs.shown import shown_backfill
from ingest.process.interrupt import run_interruptible
from ingest.services.tracing import traced
from ingest.sources.list_opening import open_order_list
from ingest.store.jobs import Jobs
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.settings import Settings

_log = get_logger("progress")


class _Display(ProgressDisplay):
    """Shows the listed orders, and how many of them were enqueued each second."""

    def __init__(self, held: Job) -> None:
        super().__init__(_kind(held))
        self._before = self._differing = BackfillProgress.of(held.progress).differing
        self._verb = "would_enqueue" if BackfillRequest.of(held).dry_run else "enqueued"
        self._begun = time.monotonic()

    def show(self, progress: JobProgress) -> None:
        """Show the progress."""
        self._differing = max(progress.done, BackfillProgress.of(progress).differing)
        self.update(progress.examined)

    def describe(self) -> str:
        """See `ProgressDisplay`."""
        verb = self._verb.replace("_", " ")
        return f"{self._activity}: {verb} {self._differing:,}, {self._rate():,.1f}/s, listed"

    def log(self, done: int) -> None:
        """See `ProgressDisplay`."""
        counts = {self._verb: self._differing, "per_second": round(self._rate(), 1)}
        _log.info("command_progress", activity=self._activity, done=done, **counts)

    def _rate(self) -> float:
        return (self._differing - self._before) / max(0.1, time.monotonic() - self._begun)


def start_and_run(settings: "Settings", request: BackfillRequest) -> Job:
    """Start a backfill, and run it to its end. Return it as it has ended."""
    return _traced(settings, lambda jobs: operations.start(jobs, request.as_job(), actor(), holder()))


def resume_and_run(settings: "Settings", job: Job) -> Job:
    """Resume a backfill, and run it to its end. Return it as it has ended."""
    return _traced(settings, lambda jobs: operations.resume(jobs, job, actor(), holder()))


def print_ended(ended: Job, *, as_json: bool) -> int:
    """Print the result of a backfill, and return the exit code."""
    if as_json:
        typer.echo(as_text(ended))
    else:
        state = "has failed" if ended.state is JobState.FAILED else f"is {ended.state}"
        typer.echo(f"{_kind(ended)} {ended.id}{_of(ended.source)} {state}: {_counts(ended)}")
        if ended.state is not JobState.DONE:
            if ended.error:
                say(printable(ended.error))
            say(f"continue it with: ingest backfill resume {ended.id}")
    return 0 if ended.state is JobState.DONE else 1


def cancelled_text(cancelled: Job) -> str:
    """A cancelled backfill in words."""
    return f"{_kind(cancelled)} {cancelled.id} is cancelled: {_counts(cancelled)}"


def as_text(backfill: Job) -> str:
    """A backfill as JSON, with times as `--since` takes them."""
    return json.dumps(asdict(shown_backfill(backfill)), default=format_time)


def _traced(settings: "Settings", begin: Callable[[Jobs], Awaitable[Job]]) -> Job:
    return run_interruptible(traced(settings, "backfill", partial(_run, settings, begin)))


async def _run(settings: "Settings", begin: Callable[[Jobs], Awaitable[Job]]) -> Job:
    # Before the job exists, so that a mistake in the configuration leaves none behind.
    async with (
        open_order_list(settings, os.environ) as listed,
        open_parts(Backends.of(settings), listed=listed) as parts,
    ):
        held = await begin(parts.jobs)
        request = BackfillRequest.of(held)
        end = "now" if request.end is None else format_time(request.end)
        say(f"{_kind(held)} {held.id}{_of(held.source)}: {format_time(request.since)} to {end}")
        with _Display(held) as display:
            return await run_held(held, parts, display.show, lambda why: display.say(f"waiting: {why}"))


def _counts(backfill: Job) -> str:
    progress = BackfillProgress.of(backfill.progress)
    verb = "would enqueue" if BackfillRequest.of(backfill).dry_run else "enqueued"
    return (
        f"{verb} {counted(progress.differing, 'order')} ({progress.missing:,} missing, {progress.outdated:,} outdated)"
        f" of {progress.listed:,} listed"
    )


def _kind(backfill: Job) -> str:
    return "dry run" if BackfillRequest.of(backfill).dry_run else "backfill"


def _of(source: str) -> str:
    return f" of {source}" if source else ""
