"""Checks every few seconds whether PostgreSQL can be used, and which sessions have locked the table of orders."""

import asyncio
import time

from ingest.domain.errors import StoreUnavailable, UserError
from ingest.domain.operating.source_state import POSTGRES, Reason, State
from ingest.store.connections.pool import Pool
from ingest.store.lockers import Locker, lockers

_EVERY = 5.0
_TIMEOUT = 1.0


class StoreChecks:
    """The last check of one process.

    Attributes:
        problem: why PostgreSQL cannot be used, or empty.
        lockers: the sessions whose locks prevent that orders are stored.
        since: when the problem was first found, in Unix seconds.
    """

    def __init__(self, pool: Pool) -> None:
        self.problem = ""
        self.lockers: list[Locker] = []
        self.since: float | None = None
        self._pool = pool
        self._checked_at = -_EVERY

    async def refresh(self, now: float) -> None:
        """Check again if the last check is some seconds old, by monotonic seconds. It takes a second at most."""
        if now - self._checked_at < _EVERY:
            return
        found = list[Locker]()
        try:
            async with asyncio.timeout(_TIMEOUT):
                found = await lockers(self._pool)
            problem = ""
        except TimeoutError:
            problem = f"no response within {_TIMEOUT:g} s"
        except (StoreUnavailable, UserError) as error:
            problem = str(error)
        is_known = bool(problem) and bool(self.problem)
        self.since = self.since if is_known else time.time() if problem else None
        self.problem, self.lockers, self._checked_at = problem, found, now

    def reasons(self) -> list[Reason]:
        """Return the problems as reasons."""
        if self.problem:
            return [Reason(State.STORE_UNAVAILABLE, self.problem, self.since, POSTGRES)]
        now = time.time()
        return [
            Reason(State.STORE_UNAVAILABLE, each.text, None if each.seconds is None else now - each.seconds, POSTGRES)
            for each in self.lockers
        ]
