"""The files that the jobs of one source write, part by part, in the table `job_output`: exports, and the orders that a job fetches again.

A part is added together with the progress that it belongs to, and only under the lease of the job. If the process dies here, the next one
continues after the last part, so that the file neither misses nor repeats a line.
"""

import asyncio
import gzip
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

import msgspec

from ingest.domain.operating.jobs import OUTPUT_KEPT, Job, JobProgress, RefetchedRows
from ingest.domain.orders.order_filter import OrderPosition
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.statements import Fetches
from ingest.store.jobs import LEASE_SECONDS, LeaseLost

# A part that exists was added by an earlier call whose response was lost.
_ADD = f"""
WITH held AS (
    UPDATE jobs SET leased_until = clock_timestamp() + make_interval(secs => {LEASE_SECONDS}), error = NULL
    WHERE source = $1 AND id = $2 AND state = 'active' AND lease = $3 RETURNING id
), added AS (
    INSERT INTO job_output (job, part, progress, content) SELECT id, $4, $5::text::jsonb, $6 FROM held
    ON CONFLICT DO NOTHING
)
SELECT FROM held
"""  # noqa: S608  a constant
_LAST = """
SELECT part, progress::text AS progress FROM job_output JOIN jobs ON id = job
WHERE source = $1 AND job = $2 ORDER BY part DESC LIMIT 1
"""
_CONTENT = "SELECT content FROM job_output JOIN jobs ON id = job WHERE source = $1 AND job = $2 AND part = $3"
# The version of an order that is fetched again is reset, and each document that is stored later has a greater one.
_COMPARE = """
SELECT count(*) FILTER (WHERE o.ingested_at <> listed.stored_at),
       count(*) FILTER (WHERE o.ingested_at = listed.stored_at AND o.version > 'epoch')
FROM unnest($2::text[], $3::timestamptz[]) AS listed (order_id, stored_at)
JOIN orders AS o ON o.source = $1 AND o.order_id = listed.order_id
"""
# Orders that are compared in seconds.
_MOST_COMPARED = 100_000
_DELETE_EXPIRED = f"""
DELETE FROM job_output USING jobs
WHERE id = job AND ended_at < clock_timestamp() - make_interval(secs => {OUTPUT_KEPT.total_seconds()})
"""  # noqa: S608  a constant


class JobOutput:
    """The files of one source.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now. A change may have been made nevertheless.
    """

    def __init__(self, connection: Fetches, source: str = UNNAMED) -> None:
        self._connection = connection
        self._source = source

    async def parts(self, job: int) -> tuple[int, JobProgress]:
        """Return the number of parts of a file, and the progress of the job with them."""
        for record in await self._connection.fetch(_LAST, self._source, job):
            return record["part"] + 1, msgspec.json.decode(record["progress"], type=JobProgress)
        return 0, JobProgress()

    async def add(self, held: Job, part: int, text: str, progress: JobProgress) -> None:
        """Add a part, and renew the lease. The call can be repeated.

        Raises:
            LeaseLost: the job was cancelled, or another process has taken it.
        """
        recorded = msgspec.json.encode(progress).decode()
        content = await asyncio.to_thread(gzip.compress, text.encode())
        if not await self._connection.fetch(_ADD, self._source, held.id, held.lease, part, recorded, content):
            raise LeaseLost

    async def add_orders(self, held: Job, part: int, orders: Sequence[OrderPosition], progress: JobProgress) -> None:
        """Add the orders of a part, as `add` does."""
        await self.add(held, part, msgspec.json.encode(orders).decode(), progress)

    async def orders(self, job: int, part: int) -> list[OrderPosition]:
        """Return the orders of a part."""
        return msgspec.json.decode(await self._text(job, part), type=list[OrderPosition])

    async def refetched(self, job: int) -> RefetchedRows | None:
        """Compare the rows of the first 100,000 orders of a job with their times in its file. None if there is no file."""
        count, _ = await self.parts(job)
        compared = changed = unchanged = part = 0
        while part < count and compared < _MOST_COMPARED:
            orders = await self.orders(job, part)
            times = [datetime.fromisoformat(each.stored_at or "") for each in orders]
            [row] = await self._connection.fetch(_COMPARE, self._source, [each.order_id for each in orders], times)
            compared, changed, unchanged, part = (
                compared + len(orders), changed + row[0], unchanged + row[1], part + 1
            )  # fmt: skip
        fetched = changed + unchanged
        return RefetchedRows(fetched, changed, unchanged, compared - fetched) if count else None

    async def texts(self, job: int) -> AsyncGenerator[bytes, None]:
        """Return the text of a file, part by part. Close the generator if you stop early.

        Raises:
            LookupError: the file was deleted in the meantime.
        """
        count, _ = await self.parts(job)
        for part in range(count):
            yield await self._text(job, part)

    async def _text(self, job: int, part: int) -> bytes:
        records = await self._connection.fetch(_CONTENT, self._source, job, part)
        if not records:
            raise LookupError(f"the output of the job {job} was deleted")
        return gzip.decompress(records[0]["content"])


async def delete_expired_output(connection: Fetches) -> None:
    """Delete the files of jobs that ended longer than `OUTPUT_KEPT` ago."""
    await connection.fetch(_DELETE_EXPIRED)
