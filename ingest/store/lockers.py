"""Names the sessions that have locked our tables, so that no order can be stored."""

from dataclasses import dataclass
from typing import Any, Protocol

# The locks that conflict with the lock of an INSERT. Without further rights, a role does not see how long another role's transaction is open.
_LOCKERS = """
SELECT DISTINCT pid, usename AS role, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE relation IN (to_regclass('orders'), to_regclass('erased_orders')) AND granted
  AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY pid
"""


@dataclass(frozen=True, slots=True)
class Locker:
    """A session that has locked our tables.

    Attributes:
        pid: of its server process.
        seconds: for which its transaction has been open, or None if our role may not see it.
    """

    pid: int
    role: str
    seconds: float | None


class _Connection(Protocol):
    """A connection or a pool of connections."""

    async def fetch(self, query: str, /) -> list[Any]: ...


async def lockers(connection: _Connection) -> list[Locker]:
    """Return the sessions whose locks conflict with storing orders."""
    return [Locker(**row) for row in await connection.fetch(_LOCKERS)]
