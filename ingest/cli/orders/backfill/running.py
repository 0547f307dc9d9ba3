"""Runs a backfill in this process, with progress."""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import typer

from ingest.cli.invocation import actor, say
from ingest.cli.orders.backfill.found import as_text
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted, printable
from ingest.cli.terminal.times import format_time
from ingest.domain.backfill import Backfill, BackfillProgress, BackfillRequest, JobState
from ingest.domain.errors import Fault, Unavailable, UserError
from ingest.operations import backfill as operations
from ingest.operations.backends import Backends
from ingest.operations.backfill.differing import differing
from ingest.operations.backfill.lane import open_main_lane
from ingest.operations.backfill.run import BackfillParts, BackfillRun
from ingest.operations.list_pages import pages_from
from ingest.process.interrupt import run_interruptible
from ingest.sources.list_opening import open_order_list
from ingest.store.audit import AuditLog
from ingest.store.backfills import Backfills, LeaseLost
from ingest.store.pool import Pool
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.domain.fetch.listed import OrderList
    from ingest.settings import Settings

_log = get_logger("progress")
# Seconds to record that a backfill was cancelled by Ctrl-C.
_LAST_WAIT = 5.0


class _Display(ProgressDisplay):
    """Shows the listed orders, and how many were enqueued each second."""

    def __init__(self, activity: str, before: int = 0) -> None:
        super().__init__(activity)
        self._before = self._enqueued = before
        self._begun = time.monotonic()

    def show(self, progress: BackfillProgress, more: int = 0) -> None:
        """Show the progress, and orders that are enqueued since then."""
        self._enqueued = progress.enqueued + more
        self.update(progress.listed)

    def describe(self) -> str:
        """See `ProgressDisplay`."""
        return f"{self._activity}: {self._enqueued:,} enqueued, {self._rate():,.1f}/s, listed"

    def log(self, done: int) -> None:
        """See `ProgressDisplay`."""
        rate = round(self._rate(), 1)
        _log.info("command_progress", activity=self._activity, done=done, enqueued=self._enqueued, per_second=rate)

    def _rate(self) -> float:
        return (self._enqueued - self._before) / max(0.1, time.monotonic() - self._begun)


def start_and_run(settings: "Settings", request: BackfillRequest) -> Backfill:
    """Start a backfill, and run it to its end. Return it as it has ended."""

    async def started(backfills: Backfills, audit_log: AuditLog) -> Backfill:
        return await operations.start(backfills, audit_log, request, actor())

    return run_interruptible(_run(settings, started))


def resume_and_run(settings: "Settings", job: int) -> Backfill:
    """Resume a backfill, and run it to its end. Return it as it has ended."""

    async def resumed(backfills: Backfills, audit_log: AuditLog) -> Backfill:
        return await operations.resume(backfills, audit_log, job, actor())

    return run_interruptible(_run(settings, resumed))


def count_only(settings: "Settings", request: BackfillRequest) -> BackfillProgress:
    """Count the orders that a backfill would enqueue."""
    return run_interruptible(_count(settings, request))


def print_ended(ended: Backfill, *, as_json: bool) -> int:
    """Print the result of a backfill, and return the exit code."""
    if as_json:
        typer.echo(as_text(ended))
    else:
        state = "has failed" if ended.state is JobState.FAILED else f"is {ended.state}"
        typer.echo(f"backfill {ended.id}{_of(ended.source)} {state}: {counts(ended.progress)}")
        if ended.state is not JobState.DONE:
            if ended.error:
                say(printable(ended.error))
            say(f"continue it with: ingest backfill resume {ended.id}")
    return 0 if ended.state is JobState.DONE else 1


def print_counts(found: BackfillProgress, source: str, *, as_json: bool) -> None:
    """Print the result of a dry run."""
    if as_json:
        numbers = {"listed": found.listed, "missing": found.missing, "outdated": found.outdated}
        typer.echo(json.dumps({"source": source, "dry_run": True, **numbers}))
    else:
        before = f"{source}: " if source else ""
        typer.echo(f"{before}{counts(found, 'would enqueue')}")


def counts(progress: BackfillProgress, verb: str = "enqueued") -> str:
    """The counts of a backfill in words."""
    return (
        f"{verb} {counted(progress.enqueued, 'order')} ({progress.missing:,} missing, {progress.outdated:,} outdated)"
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
        begun: Backfill = await begin(backfills, audit_log)
        try:
            await _run_begun(begun, BackfillParts(listed, pool, lane, backfills))
        except LeaseLost:
            pass  # cancelled, or taken by another process after an outage of PostgreSQL
        except asyncio.CancelledError:
            await _cancel(backfills, audit_log, begun)
            raise
        return await backfills.get(begun.id) or begun


async def _run_begun(begun: Backfill, parts: BackfillParts) -> None:
    held = await operations.take(parts.backfills, begun.id, f"{socket.gethostname()}-{os.getpid()}")
    say(f"backfill {held.id}{_of(held.source)}: {format_time(held.request.since)} to {format_time(held.request.until)}")
    with _Display("backfill", held.progress.enqueued) as display:
        run = BackfillRun(held, parts, on_progress=display.show, on_wait=lambda why: display.say(f"waiting: {why}"))
        await run.run()


async def _cancel(backfills: Backfills, audit_log: AuditLog, begun: Backfill) -> None:
    """Cancel the job after Ctrl-C. If that fails, its lease expires, and a worker continues it."""
    with suppress(Unavailable, UserError, TimeoutError):
        async with asyncio.timeout(_LAST_WAIT):
            cancelled = await operations.cancel(backfills, audit_log, begun.id, actor())
            say(f"backfill {begun.id} is cancelled: {counts(cancelled.progress)}")
            say(f"continue it with: ingest backfill resume {begun.id}")


async def _count(settings: "Settings", request: BackfillRequest) -> BackfillProgress:
    servers = Backends.of(settings)
    async with (
        Pool.open(servers.postgres_dsn, size=1) as pool,
        open_order_list(settings, os.environ) as listed,
    ):
        with _Display("counting") as display:
            try:
                return await _counted(listed, pool, servers.source, request, display)
            except Fault as error:
                raise UserError(f"the list cannot be read: {error}") from error


async def _counted(
    listed: "OrderList", pool: Pool, source: str, request: BackfillRequest, display: _Display
) -> BackfillProgress:
    found = BackfillProgress()
    pages = pages_from(listed, request.since, request.until, on_wait=lambda why: display.say(f"waiting: {why}"))
    async for page in pages:
        differs = await differing(pool, source, page, request)
        found = BackfillProgress(
            None, found.listed + differs.listed, found.missing + differs.missing, found.outdated + differs.outdated
        )
        display.show(found)
    return found


def _of(source: str) -> str:
    return f" of {source}" if source else ""
