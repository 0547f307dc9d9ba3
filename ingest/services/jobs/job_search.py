"""Searches the waiting jobs of all sources of one process with one statement.

If the process dies here, the jobs wait until another process finds them.
"""

import asyncio
import random
from collections.abc import Collection
from weakref import WeakValueDictionary

from ingest.domain.errors import StoreLocked, Unavailable, UserError
from ingest.domain.operating.jobs import JobKind
from ingest.store.connections.statements import Fetches
from ingest.store.jobs import waiting_jobs
from ingest.telemetry.logs import get_logger

_log = get_logger("jobs")

OF_WORKERS = (JobKind.PREVIEW, JobKind.REMAP, JobKind.BACKFILL)
"""The kinds that workers run, which have the credentials of the external APIs and the right to store orders."""
OF_THE_API = tuple(kind for kind in JobKind if kind not in OF_WORKERS)
# Seconds between two searches, on average.
_EVERY = 5.0
# After a denied or locked statement. Each costs batches of orders their connection to PostgreSQL, or seconds of waiting.
_SELDOM = 60.0


class JobSearch:
    """Implements `ingest.flow.ports.FleetPart`.

    Args:
        connection: to PostgreSQL.
        kinds: that this process runs.
    """

    def __init__(self, connection: Fetches, kinds: Collection[JobKind]) -> None:
        self._connection = connection
        self._kinds = kinds
        self._wanted: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._problem = ""
        # Its own, because tests run the API in a thread, and need equal numbers of the shared one.
        self._draw = random.Random().uniform  # noqa: S311  not a secret

    def wanted(self, sources: Collection[str]) -> asyncio.Event:
        """Return an event that is set when jobs of these sources wait. While it is set, the search leaves out the sources."""
        event = asyncio.Event()
        self._wanted.update(dict.fromkeys(sources, event))
        return event

    async def run(self) -> None:
        """Search until cancelled."""
        while True:
            pause = _EVERY
            try:
                await self.search()
                self._problem = ""
            except Unavailable as error:
                pause = pause_after(error)
                self.report(error)
            # Spread, so that the processes do not search at the same time.
            await asyncio.sleep(pause * self._draw(0.5, 1.5))

    async def search(self) -> None:
        """Set the events of sources with waiting jobs. Raises `Unavailable`."""
        sources = [source for source, wanted in self._wanted.items() if not wanted.is_set()]
        for source, _, _ in await waiting_jobs(self._connection, sources, self._kinds) if sources else ():
            if (wanted := self._wanted.get(source)) is not None:
                wanted.set()

    def close(self) -> None:
        """See `FleetPart`. There is nothing to end."""

    def report(self, error: Exception) -> None:
        """Log an error once if access is denied, because the operator has to act. An outage is logged elsewhere."""
        if isinstance(error, UserError) and str(error) != self._problem:
            self._problem = str(error)
            _log.error("jobs_unavailable", problem=self._problem)


def pause_after(error: Unavailable) -> float:
    """Return the seconds after which a statement that has failed is repeated."""
    return _SELDOM if isinstance(error, UserError | StoreLocked) else _EVERY
