"""Searches the waiting jobs of all sources of one worker process with one statement.

If the process dies here, the jobs wait until another process finds them.
"""

import asyncio
import random
from weakref import WeakValueDictionary

from ingest.domain.errors import StoreLocked, Unavailable, UserError
from ingest.domain.operating.jobs import JobKind
from ingest.store.connections.statements import Fetches
from ingest.store.jobs import waiting_jobs
from ingest.telemetry.logs import get_logger

_log = get_logger("jobs")

KINDS = (JobKind.PREVIEW, JobKind.REMAP)
# Seconds between two searches, on average.
_EVERY = 5.0
# After a denied or locked statement. Each costs batches of orders their connection to PostgreSQL, or seconds of waiting.
SELDOM = 60.0


class JobSearch:
    """Implements `ingest.flow.ports.FleetPart`.

    Args:
        connection: to PostgreSQL.
    """

    def __init__(self, connection: Fetches) -> None:
        self._connection = connection
        self._wanted: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._problem = ""

    def wanted(self, source: str) -> asyncio.Event:
        """Return an event that is set when jobs of a source wait. While it is set, the search leaves out the source."""
        event = self._wanted[source] = asyncio.Event()
        return event

    async def run(self) -> None:
        """Search until cancelled."""
        while True:
            pause = _EVERY
            try:
                await self.search()
                self._problem = ""
            except Unavailable as error:
                if isinstance(error, UserError | StoreLocked):
                    pause = SELDOM
                # An outage is logged elsewhere. If access is denied, the operator has to act.
                if isinstance(error, UserError):
                    self._report(str(error))
            # Spread, so that the processes do not search at the same time.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  not a secret

    async def search(self) -> None:
        """Set the events of sources with waiting jobs. Raises `Unavailable`."""
        sources = [source for source, wanted in self._wanted.items() if not wanted.is_set()]
        for source, _ in await waiting_jobs(self._connection, sources, KINDS) if sources else ():
            if (wanted := self._wanted.get(source)) is not None:
                wanted.set()

    def close(self) -> None:
        """See `FleetPart`. There is nothing to end."""

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.error("jobs_unavailable", problem=problem)
