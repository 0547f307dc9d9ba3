"""Checks every few seconds whether PostgreSQL can be used, and which sessions have locked the table of orders."""

import asyncio

from ingest.domain.errors import StoreUnavailable, UserError
from ingest.store.connections.pool import Pool
from ingest.store.lockers import Locker, lockers

_EVERY = 5.0
_TIMEOUT = 1.0


class StoreChecks:
    """The last check of one process.

    Attributes:
        problem: why PostgreSQL cannot be used, or empty.
        lockers: the sessions whose locks prevent that orders are stored.
    """

    def __init__(self, pool: Pool) -> None:
        self.problem = ""
        self.lockers: list[Locker] = []
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
        self.problem, self.lockers, self._checked_at = problem, found, now
