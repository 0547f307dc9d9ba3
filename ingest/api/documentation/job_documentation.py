"""The OpenAPI documentation of the routes of jobs."""

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter
from ingest.api.documentation.operations_documentation import LISTED, MALFORMED, paging
from ingest.api.http.json_responses import JSON
from ingest.api.operations.job_body import JobBody
from ingest.operations.failed_orders.dead_letter_export import FORMATS
from ingest.operations.jobs.shown import JobList, JobWithResult, ShownJob

_ID = Parameter("job", "path", "The number of the job.", {"type": "integer", "minimum": 1}, is_required=True)
_NONE = "The job does not exist."

PAGE = Documentation(
    summary="List jobs",
    text="Including backfills, the newest first.",
    parameters=paging(500),
    response=LISTED,
    schema=JobList,
    problems=MALFORMED,
)
START = Documentation(
    summary="Start a job",
    text="Changes or exports many dead letters, or changes many retries or stored orders. See the pages on dead letters and on finding orders. A process of the HTTP API begins within seconds, and "
    "another one continues if that process dies. A worker of the source runs a preview, which changes nothing. The audit log records the request and the changes.",
    bodies={JSON: JobBody},
    status=202,
    response="The job waits for a process.",
    schema=ShownJob,
    problems={
        415: "The body is not JSON, or is compressed.",
        422: "The body does not select anything, or contradicts itself. To select everything, set `everything`. "
        "An export does not accept `ids`.",
    },
)
SHOW = Documentation(
    summary="Show a job",
    text="With its progress, which is recorded once a second, and the result of a preview.",
    parameters=[_ID],
    response="The job.",
    schema=JobWithResult,
    problems={404: _NONE, **MALFORMED},
)
OUTPUT = Documentation(
    summary="Download an export",
    text="The file of a job of the kind `dead_letters.export` that is done. It is deleted 7 days after the end of the job.",
    parameters=[_ID],
    response="JSON lines or CSV.",
    schema=None,
    others=dict.fromkeys(FORMATS.values(), TEXT),
    problems={
        404: _NONE,
        409: "It is no export, or it is not done (`job_state`).",
        410: "The file was deleted (`job_output_expired`).",
        **MALFORMED,
    },
)
CANCEL = Documentation(
    summary="Cancel a job",
    text="Changes that it has made stay. The audit log records it.",
    parameters=[_ID],
    response="The job is cancelled. Its process stops within seconds.",
    schema=ShownJob,
    problems={404: _NONE, 409: "It has already ended (`job_state`).", **MALFORMED},
)
RESUME = Documentation(
    summary="Resume a job",
    text="Continues a cancelled or failed job from where it has ended. A waiting job keeps waiting. The audit log records it.",
    parameters=[_ID],
    status=202,
    response="The job waits for a process.",
    schema=ShownJob,
    problems={404: _NONE, 409: "It is done, it is running, or it is a backfill (`job_state`).", **MALFORMED},
)
