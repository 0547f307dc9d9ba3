"""The OpenAPI documentation of the routes of backfills."""

from ingest.api.documentation.documentation import Documentation, Parameter
from ingest.api.documentation.operations_documentation import LISTED, MALFORMED, paging
from ingest.api.http.json_responses import JSON
from ingest.api.operations.backfill_body import BackfillBody
from ingest.operations.jobs.shown import BackfillList, ShownBackfill

_ID = Parameter("backfill", "path", "The number of the backfill.", {"type": "integer", "minimum": 1}, is_required=True)
_NONE = "The backfill does not exist."
_NO_LIST = "no list is configured for the source (`no_list`)."

PAGE = Documentation(
    summary="List backfills",
    text="The newest first.",
    parameters=paging(500),
    response=LISTED,
    schema=BackfillList,
    problems=MALFORMED,
)
START = Documentation(
    summary="Start a backfill",
    text="Reads the shop's list of a period, and enqueues the orders that are missing or outdated. See the page on polling and "
    "backfills. A worker process starts it within seconds. A dry run only counts these orders. The audit log records it.",
    bodies={JSON: BackfillBody},
    status=202,
    response="The backfill waits for a worker process.",
    schema=ShownBackfill,
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
    schema=ShownBackfill,
    problems={404: _NONE, **MALFORMED},
)
CANCEL = Documentation(
    summary="Cancel a backfill",
    text="Orders that are already enqueued stay in the queue. The audit log records it.",
    parameters=[_ID],
    response="The backfill is cancelled.",
    schema=ShownBackfill,
    problems={404: _NONE, 409: "It has already ended (`backfill_ended`).", **MALFORMED},
)
RESUME = Documentation(
    summary="Resume a backfill",
    text="Continues a cancelled or failed backfill or dry run from the page at which it has ended. A worker process starts it within "
    "seconds. A waiting backfill keeps waiting. The audit log records it.",
    parameters=[_ID],
    status=202,
    response="The backfill waits for a worker process.",
    schema=ShownBackfill,
    problems={
        404: _NONE,
        409: "It is done (`backfill_ended`), it is running or another backfill of the source is unfinished "
        "(`unfinished_backfill`, the number is in `id`), or " + _NO_LIST,
        **MALFORMED,
    },
)
