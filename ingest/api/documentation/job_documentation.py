"""The OpenAPI documentation of the routes of jobs."""

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter
from ingest.api.documentation.operations_documentation import paging
from ingest.api.http.json_responses import JSON
from ingest.api.operations.job_body import JobBody
from ingest.operations.failed_orders.dead_letter_export import FORMATS
from ingest.operations.jobs.shown import JobList, JobWithResult, ShownJob

_ID = Parameter("job", "path", "The number of the job.", {"type": "integer", "minimum": 1}, is_required=True)

PAGE = Documentation(
    text="Including backfills, the newest first.",
    parameters=paging(500),
    schema=JobList,
)
START = Documentation(
    text="Changes or exports many dead letters, or changes many retries or stored orders. See the pages on dead letters and on finding orders. A process of the HTTP API begins within seconds, and "
    "another one continues if that process dies. A worker of the source runs a preview, which changes nothing. The audit log records the request and the changes.",
    bodies={JSON: JobBody},
    status=202,
    response="The job waits for a process.",
    schema=ShownJob,
    problems={
        422: "The body does not select anything, or contradicts itself. To select everything, set `everything`. "
        "An export does not accept `ids`.",
    },
)
SHOW = Documentation(
    text="With its progress, which is recorded once a second, and its result. The audit log records who reads the result of a preview.",
    parameters=[_ID],
    schema=JobWithResult,
)
OUTPUT = Documentation(
    text="The file of a job of the kind `dead_letters.export` that is done. It is deleted 7 days after the end of the job.",
    parameters=[_ID],
    response="JSON lines or CSV.",
    schema=None,
    others=dict.fromkeys(FORMATS.values(), TEXT),
)
CANCEL = Documentation(
    text="Changes that it has made stay.",
    parameters=[_ID],
    response="The job is cancelled. Its process stops within seconds.",
    schema=ShownJob,
)
RESUME = Documentation(
    text="Continues a cancelled or failed job from where it has ended. A waiting job keeps waiting.",
    parameters=[_ID],
    status=202,
    response="The job waits for a process.",
    schema=ShownJob,
)
