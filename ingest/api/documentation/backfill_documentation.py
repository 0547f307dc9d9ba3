"""The OpenAPI documentation of the routes of backfills."""

from ingest.api.documentation.documentation import Documentation, Parameter
from ingest.api.documentation.operations_documentation import paging
from ingest.api.http.json_responses import JSON
from ingest.api.operations.backfill_body import BackfillBody
from ingest.operations.jobs.shown import BackfillList, ShownBackfill

_ID = Parameter("backfill", "path", "The number of the backfill.", {"type": "integer", "minimum": 1}, is_required=True)

PAGE = Documentation(
    text="The newest first.",
    parameters=paging(500),
    schema=BackfillList,
)
START = Documentation(
    text="Reads the shop's list of a period, and enqueues the orders that are missing or outdated. See the page on polling and "
    "backfills. A worker process starts it within seconds. A dry run only counts these orders.",
    bodies={JSON: BackfillBody},
    status=202,
    response="The backfill waits for a worker process.",
    schema=ShownBackfill,
    problems={
        422: "The period or the rate is invalid.",
    },
)
SHOW = Documentation(
    text="With its progress.",
    parameters=[_ID],
    schema=ShownBackfill,
)
CANCEL = Documentation(
    text="Orders that are already enqueued stay in the queue.",
    parameters=[_ID],
    response="The backfill is cancelled.",
    schema=ShownBackfill,
)
RESUME = Documentation(
    text="Continues a cancelled or failed backfill or dry run from the page at which it has ended. A worker process starts it within "
    "seconds. A waiting backfill keeps waiting.",
    parameters=[_ID],
    status=202,
    response="The backfill waits for a worker process.",
    schema=ShownBackfill,
)
