"""The OpenAPI documentation of the routes of jobs."""

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter, Schema, object_schema
from ingest.api.documentation.operations_documentation import COUNT, LISTED, MALFORMED, TIME, page_schema, paging
from ingest.api.http.json_responses import JSON
from ingest.api.operations.job_body import JobBody
from ingest.domain.operating.jobs import JobKind, JobState
from ingest.operations.failed_orders.dead_letter_export import FORMATS

_OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
_OPTIONAL_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_JOB = object_schema(
    "id",
    "source",
    "kind",
    "state",
    "selection",
    "total",
    "rate",
    "done",
    "gone",
    "examined",
    "per_second",
    "requested_by",
    "requested_at",
    "holder",
    "started_at",
    "ended_at",
    "error",
    id={"type": "integer", "minimum": 1},
    source=TEXT,
    kind={"enum": [kind.value for kind in JobKind]},
    state={"enum": [state.value for state in JobState]},
    selection={"type": "object", "description": "The selected entries, or the period of a backfill."},
    total={"type": ["integer", "null"], "description": "Entries that matched when the job was requested, if known."},
    rate={"type": ["number", "null"], "description": "Limit of changes per second."},
    done={**COUNT, "description": "Entries that were changed or exported."},
    gone={**COUNT, "description": "Entries that had already been changed otherwise."},
    examined={**COUNT, "description": "Entries that were read."},
    per_second={"type": "number", "description": "Changes per second since a process has last taken the job."},
    requested_by=TEXT,
    requested_at=TIME,
    holder={**_OPTIONAL_TEXT, "description": "The process that runs it, or has run it last."},
    started_at=_OPTIONAL_TIME,
    ended_at=_OPTIONAL_TIME,
    error={**_OPTIONAL_TEXT, "description": "The last problem."},
)
_EXAMPLE = object_schema("order_id", "before", "after", order_id=TEXT, before=_OPTIONAL_TEXT, after=_OPTIONAL_TEXT)
_RESULT: Schema = {
    **object_schema(
        "count",
        "fetched",
        "changed",
        "fields",
        "failures",
        count={"type": ["integer", "null"], "description": "Stored orders that match, if they can be counted in time."},
        fetched={**COUNT, "description": "Orders that were fetched."},
        changed={**COUNT, "description": "Orders of these that would change."},
        fields={
            "type": "array",
            "description": "The fields that would change.",
            "items": object_schema(
                "field",
                "orders",
                "examples",
                field=TEXT,
                orders=COUNT,
                examples={"type": "array", "items": _EXAMPLE},
            ),
        },
        failures={
            "type": "array",
            "description": "Orders that cannot be fetched.",
            "items": object_schema("order_id", "error", order_id=TEXT, error=TEXT),
        },
    ),
    "type": ["object", "null"],
    "description": "The result of a preview that is done. It is deleted when one of its orders is erased.",
}
_SHOWN: Schema = {
    **_JOB,
    "required": [*_JOB["required"], "result"],
    "properties": {**_JOB["properties"], "result": _RESULT},
}
_ID = Parameter("job", "path", "The number of the job.", {"type": "integer", "minimum": 1}, is_required=True)
_NONE = "The job does not exist."

PAGE = Documentation(
    summary="List jobs",
    text="Including backfills, the newest first.",
    parameters=paging(500),
    response=LISTED,
    schema=page_schema("jobs"),
    problems=MALFORMED,
)
START = Documentation(
    summary="Start a job",
    text="Changes or exports many dead letters, or changes many retries or stored orders. See the pages on dead letters and on finding orders. A process of the HTTP API begins within seconds, and "
    "another one continues if that process dies. A worker of the source runs a preview, which changes nothing. The audit log records the request and the changes.",
    bodies={JSON: JobBody},
    status=202,
    response="The job waits for a process.",
    schema=_JOB,
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
    schema=_SHOWN,
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
    schema=_JOB,
    problems={404: _NONE, 409: "It has already ended (`job_state`).", **MALFORMED},
)
RESUME = Documentation(
    summary="Resume a job",
    text="Continues a cancelled or failed job from where it has ended. A waiting job keeps waiting. The audit log records it.",
    parameters=[_ID],
    status=202,
    response="The job waits for a process.",
    schema=_JOB,
    problems={404: _NONE, 409: "It is done, it is running, or it is a backfill (`job_state`).", **MALFORMED},
)
