"""Keeps the turns and the positions of polling in the table `polls`.

One process at a time has the turn of a source. It renews its lease while it reads the list. If it dies, the lease ends, and another
process reads from the same position. Each turn has a number, so that a process that was frozen in between changes nothing.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ingest.domain.errors import StoreUnavailable, UserError
from ingest.domain.operating.polling import PollResult, PollState, PollTurn
from ingest.store.connections.pool import Pool
from ingest.store.connections.statements import Fetches

LEASE = 10.0
"""Seconds after which the turn of a process that does not renew it has ended."""

_HELD = "source = $1 AND holder = $2 AND fence = $3"
_FREE = "coalesce(p.leased_until <= clock_timestamp(), true)"
# Of a source with stored orders, the position may have been lost. It begins at the newest one.
_START = """CASE WHEN EXISTS (SELECT FROM polls WHERE source = $1) THEN $3 ELSE coalesce(
    (SELECT max(version) FROM orders WHERE source = $1 AND updated_at IS NOT NULL AND version <= $3), $3) END"""
# A process that was restarted under its name need not wait for its own lease.
_TAKE = f"""
INSERT INTO polls AS p (source, position, holder, fence, leased_until, next_at)
VALUES ($1, {_START}, $2, 1, clock_timestamp() + make_interval(secs => {LEASE}), clock_timestamp())
ON CONFLICT (source) DO UPDATE
SET holder = excluded.holder, fence = p.fence + 1, leased_until = excluded.leased_until
WHERE ({_FREE} OR p.holder = excluded.holder) AND ($4 OR p.next_at <= clock_timestamp())
RETURNING position, fence, failures, error, looked_back_at, shown_until, newest, behind, listed,
          fence = 1 AND position < $3 AS is_recovered
"""  # noqa: S608  constants, as below
_RENEW = f"""
UPDATE polls SET position = $4, leased_until = clock_timestamp() + make_interval(secs => {LEASE}) WHERE {_HELD} RETURNING 1
"""  # noqa: S608
_ADVANCE = f"""
UPDATE polls
SET position = $4, next_at = clock_timestamp() + make_interval(secs => $5), leased_until = NULL, looked_at = clock_timestamp(),
    looked_back_at = CASE WHEN $6 THEN clock_timestamp() ELSE looked_back_at END, failures = 0, error = NULL,
    shown_until = $7, newest = $8, behind = $9, listed = $10
WHERE {_HELD} RETURNING 1
"""  # noqa: S608
_FAIL = f"""
UPDATE polls
SET position = $4, next_at = clock_timestamp() + make_interval(secs => $5), leased_until = NULL, failures = failures + 1, error = $6
WHERE {_HELD} RETURNING 1
"""  # noqa: S608
_RELEASE = f"UPDATE polls SET position = $4, leased_until = NULL WHERE {_HELD} RETURNING 1"  # noqa: S608
_STATES = """
SELECT source, position, holder, looked_at, failures, error, behind,
       coalesce(leased_until > clock_timestamp(), false) AS is_reading,
       extract(epoch FROM clock_timestamp() - looked_at)::float8 AS looked_ago,
       extract(epoch FROM greatest(next_at, leased_until) - clock_timestamp())::float8 AS due_in
FROM polls WHERE source = ANY ($1::text[])
"""
_LONGEST_ERROR = 500


class Polls:
    """The polling of one source, by one process.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now. A change may have been made nevertheless.

    Args:
        connection: runs the statements.
        source: name of the source.
        holder: unique name of the process. A process that is started again instead of a dead one may have its name.
    """

    def __init__(self, connection: Fetches, source: str, holder: str) -> None:
        self._connection = connection
        self._source = source
        self._holder = holder

    async def state(self) -> PollState | None:
        """Return the recorded state, or None before the first reading."""
        return (await read_polls(self._connection, [self._source])).get(self._source)

    async def take(self, start: datetime, *, is_due: bool = False) -> PollTurn | None:
        """Take the turn, or return None if another process has it or no reading is due.

        A source without a position, but with stored orders, begins at the newest one: the position may have been lost.

        Args:
            start: position of a source without one. It is recorded, so that a first reading that fails loses no order.
            is_due: whether the list is to be read even if its time has not come.
        """
        found = await self._connection.fetch(_TAKE, self._source, self._holder, start, is_due)
        return PollTurn(**found[0]) if found else None

    async def renew(self, turn: PollTurn, position: datetime) -> bool:
        """Renew the lease and record the position, and return False if the turn has ended."""
        return await self._update(_RENEW, turn, position)

    async def advance(self, turn: PollTurn, result: PollResult, pause: float) -> bool:
        """End the turn, and return False if it had ended before. The next reading is due after the pause."""
        recorded = (result.looked_back, result.shown_until, result.newest, result.behind, result.listed)
        return await self._update(_ADVANCE, turn, result.position, pause, *recorded)

    async def fail(self, turn: PollTurn, position: datetime, error: str, pause: float) -> bool:
        """End the turn with an error. The next reading is due after the pause."""
        return await self._update(_FAIL, turn, position, pause, error[:_LONGEST_ERROR])

    async def release(self, turn: PollTurn, position: datetime) -> bool:
        """End the turn, so that another process takes it immediately."""
        return await self._update(_RELEASE, turn, position)

    async def _update(self, statement: str, turn: PollTurn, *arguments: Any) -> bool:
        return bool(await self._connection.fetch(statement, self._source, self._holder, turn.fence, *arguments))


async def read_polls(connection: Fetches, sources: Sequence[str]) -> dict[str, PollState]:
    """Return the recorded states of these sources by name. A source whose list was never read is omitted."""
    return {record["source"]: PollState(**record) for record in await connection.fetch(_STATES, [*sources])}


async def polls_if_available(dsn: str, sources: Sequence[str]) -> dict[str, PollState]:
    """As `read_polls`, on a new connection. Empty without PostgreSQL."""
    if not sources:
        return {}
    try:
        async with Pool.open(dsn, size=1) as pool:
            return await read_polls(pool, sources)
    except (StoreUnavailable, UserError):
        return {}
