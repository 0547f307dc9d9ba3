"""The files that the jobs of one source write, part by part, in the table `job_output`.

A part is added together with the progress that it belongs to, and only under the lease of the job. If the process dies here, the next one
continues after the last part, so that the file neither misses nor repeats a line.
"""

import asyncio
import gzip
from collections.abc import AsyncGenerator

import msgspec

from ingest.domain.operating.jobs import OUTPUT_KEPT, Job, JobProgress
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
