"""Runs the waiting backfills of a source in a worker process.

A backfill waits after it was requested over HTTP, or after its process has died and its lease has expired. If this process dies, the
same happens again.
"""

import asyncio
import random
from contextlib import suppress
from typing import Any

from ingest.domain.errors import Unavailable, UserError
from ingest.domain.fetch.listed import OrderList
from ingest.domain.operating.backfill import Backfill, BackfillProgress, JobState
from ingest.operations.backends import Backends
from ingest.operations.backfill.lane import open_main_lane
from ingest.operations.backfill.run import BackfillParts, BackfillRun
from ingest.store.backfills import Backfills, LeaseLost
from ingest.store.connections.statements import Fetches
from ingest.telemetry.logs import get_logger

_log = get_logger("backfill")

# Seconds between two looks for a waiting backfill, on average.
_LOOK_EVERY = 5.0
# Seconds between two log lines about the progress.
_LOG_EVERY = 30.0
# Seconds to release the lease when the process stops.
_LAST_WAIT = 2.0


class BackfillRuns:
    """Implements `ingest.flow.ports.FleetPart`.

    Args:
        servers: of the source.
        connection: to PostgreSQL.
        listed: the list of the shop.
        holder: the name of this process.
    """

    def __init__(self, servers: Backends, connection: Fetches, listed: OrderList, holder: str) -> None:
        self._servers = servers
        self._connection = connection
        self._backfills = Backfills(connection, servers.source)
        self._listed = listed
        self._holder = holder
        self._is_closed = False
        self._problem = ""

    async def run(self) -> None:
        """Run waiting backfills until cancelled."""
        while not self._is_closed:
            try:
                held = await self._backfills.take_waiting(self._holder)
                if held is not None:
                    await self._run(held)
                self._problem = ""
            except Unavailable as error:
                self._report(error)
            # Spread, so that the processes do not look at the same time.
            await asyncio.sleep(_LOOK_EVERY * random.uniform(0.5, 1.5))  # noqa: S311  not a secret

    def close(self) -> None:
        """See `FleetPart`."""
        self._is_closed = True

    async def _run(self, held: Backfill) -> None:
        about = _about(held)
        _log.info("backfill_begun", **about, listed=held.progress.listed, enqueued=held.enqueued)
        progress = _LoggedProgress(held)
        try:
            state = await self._result(held, progress)
        except LeaseLost:
            _log.info("backfill_left", **about, **progress.counts())
        else:
            _log.info("backfill_ended", **about, state=state, **progress.counts())

    async def _result(self, held: Backfill, progress: "_LoggedProgress") -> JobState:
        """Run a backfill, and return its final state."""
        about = _about(held)
        async with open_main_lane(self._servers, "backfill") as lane:
            run = BackfillRun(
                held,
                BackfillParts(self._listed, self._connection, lane, self._backfills),
                on_progress=progress.show,
                on_wait=lambda reason: _log.warning("backfill_waits", **about, problem=reason),
            )
            try:
                return await run.run()
            except (Unavailable, LeaseLost):
                raise
            except Exception as error:  # noqa: BLE001  a bug in one backfill must not stop the orders of its source
                _log.error("backfill_broken", **about, problem=repr(error), exc_info=error)
                await self._backfills.end(held, JobState.FAILED, run.progress, f"a bug: {type(error).__name__}")
                return JobState.FAILED
            except asyncio.CancelledError:
                with suppress(Unavailable, LeaseLost, TimeoutError):
                    async with asyncio.timeout(_LAST_WAIT):
                        await self._backfills.release(held)
                raise

    def _report(self, error: Unavailable) -> None:
        # An outage is logged elsewhere. If access is denied, the operator has to act.
        if isinstance(error, UserError) and str(error) != self._problem:
            self._problem = str(error)
            _log.error("backfills_unavailable", problem=self._problem)


def _about(held: Backfill) -> dict[str, Any]:
    return {"backfill": held.id, "dry_run": held.request.dry_run}


class _LoggedProgress:
    """Logs the progress of a backfill from time to time."""

    def __init__(self, held: Backfill) -> None:
        self._held = held
        self._progress = held.progress
        self._logged_at = asyncio.get_running_loop().time()

    def show(self, progress: BackfillProgress, _: int) -> None:
        self._progress = progress
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= _LOG_EVERY:
            self._logged_at = now
            _log.info("backfill_progress", **_about(self._held), **self.counts())

    def counts(self) -> dict[str, int]:
        return {
            "listed": self._progress.listed,
            "missing": self._progress.missing,
            "outdated": self._progress.outdated,
        }
