"""The download of the file that a job has written."""

from collections.abc import Mapping
from datetime import UTC, datetime

from aiohttp import web

from ingest.api.http.downloads import download
from ingest.api.http.problems import failure
from ingest.api.http.reading import reader_of
from ingest.api.http.routing import Caller
from ingest.domain.operating.jobs import Job
from ingest.operations.audit import record_read
from ingest.operations.declared import DOWNLOAD
from ingest.operations.failed_orders.dead_letter_export import FORMATS
from ingest.operations.jobs.export import FORMAT
from ingest.store.audit import AuditLog
from ingest.store.job_output import JobOutput


async def output_response(
    request: web.Request, caller: Caller, job: Job, output: JobOutput, audit_log: AuditLog, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send the file of a job with further headers, and record who reads it.

    Raises:
        Problem: 409 if the job has no complete file, or 410 if the file was deleted.
    """
    if job.output_until is None:
        raise failure("job_state", f"the job {job.id} has no file: only an export that is done has one")
    count, _ = await output.parts(job.id)
    if not count or job.output_until <= datetime.now(UTC):
        raise failure("job_output_expired", "the file was deleted: start another export")
    file_format = job.request.selection[FORMAT]
    name = f"dead-letters-{job.id}.{file_format}"
    await record_read([audit_log], reader_of(request, caller), DOWNLOAD, {"id": job.id})
    return await download(request, output.texts(job.id), name, FORMATS[file_format], headers)
