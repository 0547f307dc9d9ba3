"""The OpenAPI documentation of the routes of backfills."""

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter, Schema, object_schema
from ingest.api.documentation.operations_documentation import COUNT, LISTED, MALFORMED, TIME, page_schema, paging
from ingest.api.http.json_responses import JSON
from ingest.api.operations.backfill_body import BackfillBody
from ingest.domain.operating.jobs import JobState

_OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
_OPTIONAL_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_BACKFILL = object_schema(
    "id",
    "source",
    "state",
    "since",
    "until",
    "rate",
    "dry_run",
    "listed",
    "missing",
    "outdated",
    "up_to_date",
    "enqueued",
    "requested_by",
    "requested_at",
    "holder",
    "started_at",
    "ended_at",
    "error",
    id={"type": "integer", "minimum": 1},
    source=TEXT,
    state={"enum": [state.value for state in JobState]},
    since=TIME,
    until=TIME,
    rate={"type": ["number", "null"], "description": "Limit of enqueued orders per second."},
    dry_run={"type": "boolean", "description": "Whether orders are only counted."},
    listed=COUNT,
    missing={**COUNT, "description": "Orders that are not stored."},
    outdated={**COUNT, "description": "Orders with an older version stored."},
    up_to_date={**COUNT, "description": "Orders that are stored as listed, or were erased."},
    enqueued={**COUNT, "description": "Missing and outdated orders, or 0 for a dry run."},
    requested_by=TEXT,
    requested_at=TIME,
    holder={**_OPTIONAL_TEXT, "description": "The process that runs it, or has run it last."},
    started_at=_OPTIONAL_TIME,
    ended_at=_OPTIONAL_TIME,
    error={**_OPTIONAL_TEXT, "description": "The last problem."},
)
_ID = Parameter("backfill", "path", "The number of the backfill.", {"type": "integer", "minimum": 1}, is_required=True)
_NONE = "The backfill does not exist."
_NO_LIST = "no list is configured for the source (`no_list`)."

PAGE = Documentation(
    summary="List backfills",
    text="The newest first.",
    parameters=paging(500),
    response=LISTED,
    schema=page_schema("backfills"),
    problems=MALFORMED,
)
START = Documentation(
    summary="Start a backfill",
    text="Reads the shop's list of a period, and enqueues the orders that are missing or outdated. See the page on polling and "
    "backfills. A worker process starts it within seconds. A dry run only counts these orders. The audit log records it.",
    bodies={JSON: BackfillBody},
    status=202,
    response="The backfill waits for a worker process.",
    schema=_BACKFILL,
    problems={
        409: "Another backfill of the source is unfinished (`unfinished_backfill`, its number is in `id`), or "
        + _NO_LIST,
        415: "The body is not JSON, or is compressed.",
        422: "The period or the rate is invalid.",
    },
)
SHOW = Documentation(
    summary="Show a backfill",
    text="With its progress.",
    parameters=[_ID],
    response="The backfill.",
    schema=_BACKFILL,
    problems={404: _NONE, **MALFORMED},
)
CANCEL = Documentation(
    summary="Cancel a backfill",
    text="Orders that are already enqueued stay in the queue. The audit log records it.",
    parameters=[_ID],
    response="The backfill is cancelled.",
    schema=_BACKFILL,
    problems={404: _NONE, 409: "It has already ended (`backfill_ended`).", **MALFORMED},
)
RESUME = Documentation(
    summary="Resume a backfill",
    text="Continues a cancelled or failed backfill or dry run from the page at which it has ended. A worker process starts it within "
    "seconds. A waiting backfill keeps waiting. The audit log records it.",
    parameters=[_ID],
    status=202,
    response="The backfill waits for a worker process.",
    schema=_BACKFILL,
    problems={
        404: _NONE,
        409: "It is done (`backfill_ended`), it is running or another backfill of the source is unfinished "
        "(`unfinished_backfill`, the number is in `id`), or " + _NO_LIST,
        **MALFORMED,
    },
)
