"""Names the sessions that have locked tables, so that orders cannot be stored."""

from dataclasses import dataclass
from typing import Any, Protocol

# The locks that conflict with the lock of an INSERT. Without further rights, a role does not see how long another role's transaction is open.
_LOCKERS = """
SELECT DISTINCT pid, usename AS role, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
  relation::regclass::text AS "table"
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE granted AND relation IN (
    SELECT relid FROM unnest(ARRAY[to_regclass('orders'), to_regclass('erased_orders'), to_regclass('order_history')]) AS ours (name),
      LATERAL (SELECT ours.name::oid AS relid UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = ours.name) AS parts
  )
  AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY pid
"""
# The tables for which sessions of our role wait now, which may be a table of a trigger. `pg_locks` shows no row that is waited for.
_WAITED_FOR = """
SELECT DISTINCT holder.pid, holder.usename AS role, extract(epoch FROM clock_timestamp() - holder.xact_start)::float8 AS seconds,
  waiting.relation::regclass::text AS "table"
FROM pg_locks AS waiting
JOIN pg_stat_activity AS ours ON ours.pid = waiting.pid
CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocking (pid)
JOIN pg_stat_activity AS holder ON holder.pid = blocking.pid
WHERE NOT waiting.granted AND waiting.locktype = 'relation' AND ours.usename = current_user
  AND ours.datname = current_database()
ORDER BY holder.pid
"""


@dataclass(frozen=True, slots=True)
class Locker:
    """A session that has locked a table.

    Attributes:
        pid: of its server process.
        seconds: for which its transaction has been open, or None if our role may not see it.
    """

    pid: int
    role: str
    seconds: float | None
    table: str

    @property
    def text(self) -> str:
        """The lock in one line, with the statement that ends it."""
        lasting = "" if self.seconds is None else f", whose transaction has been open for {self.seconds:.0f} s,"
        ending = f"wait, or end it with `SELECT pg_terminate_backend({self.pid})`"
        return f"the session {self.pid} of the role {self.role}{lasting} has locked the table {self.table}: {ending}"


class _Connection(Protocol):
    """A connection or a pool of connections."""

    async def fetch(self, query: str, /) -> list[Any]: ...


async def lockers(connection: _Connection) -> list[Locker]:
    """Return the sessions whose locks conflict with storing orders."""
    return [Locker(**row) for row in await connection.fetch(_LOCKERS)]


async def waited_for(connection: _Connection) -> list[Locker]:
    """Return the sessions whose locks on tables the sessions of our role are waiting for."""
    return [Locker(**row) for row in await connection.fetch(_WAITED_FOR)]
