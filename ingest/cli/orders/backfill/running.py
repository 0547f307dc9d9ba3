"""Runs a backfill in this process, with progress."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from ingest.cli.invocation import actor, holder, say
from ingest.cli.orders.backfill.found import as_text
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted, printable
from ingest.cli.terminal.times import format_time
from ingest.domain.errors import Unavailable, UserError
from ingest.domain.fetch.list_gaps import maybe_skipped
from ingest.domain.operating.backfill import Backfill, BackfillProgress, BackfillRequest, JobState
from ingest.operations import backfill as operations
from ingest.operations.backends import Backends
from ingest.operations.backfill.lane import open_main_lane
from ingest.operations.backfill.run import BackfillParts, BackfillRun
from ingest.process.interrupt import run_interruptible
from ingest.services.tracing import traced
from ingest.sources.list_opening import open_order_list
from ingest.store.audit import AuditLog
from ingest.store.backfills import Backfills, LeaseLost
from ingest.store.connections.pool import Pool
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.settings import Settings

_log = get_logger("progress")
# Seconds to record that a backfill was cancelled by Ctrl-C.
_LAST_WAIT = 5.0


class _Display(ProgressDisplay):
    """Shows the listed orders, and how many of them were enqueued each second."""

    def __init__(self, held: Backfill) -> None:
        super().__init__(_kind(held))
        self._before = self._differing = held.progress.differing
        self._verb = "would_enqueue" if held.request.dry_run else "enqueued"
        self._begun = time.monotonic()

    def show(self, progress: BackfillProgress, more: int = 0) -> None:
        """Show the progress, and orders that are enqueued since then."""
        self._differing = progress.differing + more
        self.update(progress.listed)

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


def start_and_run(settings: "Settings", request: BackfillRequest) -> Backfill:
    """Start a backfill, and run it to its end. Return it as it has ended."""

    async def started(backfills: Backfills, audit_log: AuditLog) -> Backfill:
        return await operations.start(backfills, audit_log, request, actor(), holder())

    return run_interruptible(traced(settings, "backfill", partial(_run, settings, started)))


def resume_and_run(settings: "Settings", job: int) -> Backfill:
    """Resume a backfill, and run it to its end. Return it as it has ended."""

    async def resumed(backfills: Backfills, audit_log: AuditLog) -> Backfill:
        return await operations.resume(backfills, audit_log, job, actor(), holder())

    return run_interruptible(traced(settings, "backfill", partial(_run, settings, resumed)))


def print_ended(ended: Backfill, *, as_json: bool) -> int:
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


def cancelled_text(cancelled: Backfill) -> str:
    """A cancelled backfill in words."""
    return f"{_kind(cancelled)} {cancelled.id} is cancelled: {_counts(cancelled)}"


def _counts(backfill: Backfill) -> str:
    progress = backfill.progress
    verb = "would enqueue" if backfill.request.dry_run else "enqueued"
    return (
        f"{verb} {counted(progress.differing, 'order')} ({progress.missing:,} missing, {progress.outdated:,} outdated)"
        f" of {progress.listed:,} listed"
    )


async def _run(settings: "Settings", begin: Callable[[Backfills, AuditLog], Any]) -> Backfill:
    servers = Backends.of(settings)
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(Pool.open(servers.postgres_dsn, size=2))
        backfills, audit_log = Backfills(pool, servers.source), AuditLog(pool, servers.source)
        # Before the job exists, so that a mistake in the configuration leaves none behind.
        listed = await stack.enter_async_context(open_order_list(settings, os.environ))
        lane = await stack.enter_async_context(open_main_lane(servers, "backfill"))
        held: Backfill = await begin(backfills, audit_log)
        try:
            await _run_held(held, BackfillParts(listed, pool, lane, backfills))
        except LeaseLost:
            pass  # cancelled, or taken by another process after an outage of PostgreSQL
        except asyncio.CancelledError:
            await _cancel(backfills, audit_log, held)
            raise
        return await backfills.get(held.id) or held


async def _run_held(held: Backfill, parts: BackfillParts) -> None:
    period = f"{format_time(held.request.since)} to {format_time(held.request.until)}"
    say(f"{_kind(held)} {held.id}{_of(held.source)}: {period}")
    with _Display(held) as display:
        run = BackfillRun(held, parts, on_progress=display.show, on_wait=lambda why: display.say(f"waiting: {why}"))
        await run.run()
    if sentence := maybe_skipped(run.missing_or_skipped):
        say(f"not proven: {sentence}")


async def _cancel(backfills: Backfills, audit_log: AuditLog, begun: Backfill) -> None:
    """Cancel the job after Ctrl-C. If that fails, its lease expires, and a worker continues it."""
    with suppress(Unavailable, UserError, TimeoutError):
        async with asyncio.timeout(_LAST_WAIT):
            cancelled = await operations.cancel(backfills, audit_log, begun.id, actor())
            say(cancelled_text(cancelled))
            say(f"continue it with: ingest backfill resume {begun.id}")


def _kind(backfill: Backfill) -> str:
    return "dry run" if backfill.request.dry_run else "backfill"


def _of(source: str) -> str:
    return f" of {source}" if source else ""
