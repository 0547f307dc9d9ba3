"""The OpenAPI documentation of the routes of orders and operations."""

from ingest.api.documentation.documentation import ORDER_ID, Documentation, DocumentedResponse, Parameter, Schema
from ingest.api.http.json_responses import JSON
from ingest.api.operations.selections import DeadLettersBody, RetriesBody
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.orders.order_state import IngestionState

_TIME: Schema = {"type": "string", "format": "date-time"}
_TEXT: Schema = {"type": "string"}
_OPTIONAL: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_LISTED = "A page. `next_cursor` is the parameter `cursor` of the next request, or null after the last page."
_MALFORMED = {422: "A parameter is unknown, repeated or malformed. `parameter` names it."}
_ENTRIES: Schema = {"type": "array", "items": {"type": "object", "required": ["state", "entry_id"]}}
_INGESTION: Schema = {
    "type": "object",
    "required": ["state", "searched", "entries"],
    "properties": {
        "state": {"enum": [state.value for state in IngestionState]},
        "searched": {"type": "boolean"},
        "problem": _TEXT,
        "entries": _ENTRIES,
    },
}
_ORDER_ID = {"order_id": _TEXT}
_STORED: Schema = {
    "type": "object",
    "required": ["order", "row"],
    "properties": {"order": {"type": ["object", "null"]}, "row": {"type": ["object", "null"]}},
}
_CHANGED: Schema = {
    "type": "object",
    "required": ["dry_run", "count"],
    "properties": {"dry_run": {"type": "boolean"}, "count": _COUNT, "gone": _COUNT, "reasons": {"type": "object"}},
}
_NOT_SELECTED = {
    415: "The body is not JSON, or is compressed.",
    422: "The body does not select anything, or contradicts itself: everything has to be selected by `everything`.",
}


def _page(member: str) -> Schema:
    return {
        "type": "object",
        "required": [member, "next_cursor"],
        "properties": {member: {"type": "array", "items": {"type": "object"}}, "next_cursor": _OPTIONAL},
    }


def _limit(most: int) -> list[Parameter]:
    return [
        Parameter(
            "limit",
            "query",
            "Maximum number of elements in a page.",
            {"type": "integer", "minimum": 1, "maximum": most},
        ),
        Parameter("cursor", "query", "Where the page begins: `next_cursor` of the page before."),
    ]


def _several(name: str, text: str) -> Parameter:
    return Parameter(name, "query", text, {"type": "array", "items": _TEXT})


SHOW = Documentation(
    summary="Find an order",
    text="The stored order and its state in the queue: see the page on finding orders. If the queue is too long to be searched, or "
    "Redis is unavailable, the state is `unknown`.",
    parameters=[ORDER_ID],
    answers={
        200: DocumentedResponse(
            "All that is known of the order.",
            {
                "type": "object",
                "required": ["order_id", "order", "row", "erased_at", "ingestion"],
                "properties": _ORDER_ID
                | dict(_STORED["properties"])
                | {"erased_at": _OPTIONAL, "ingestion": _INGESTION},
            },
        )
    },
    problems={404: "The order is found nowhere.", 422: "The ID in the path is invalid, or there is a query."},
)
PAGE = Documentation(
    summary="List stored orders",
    text="In the order of their IDs, without lines and attributes. A filter that few orders match may take too long: 503 with "
    "the code `query_too_slow`.",
    parameters=[
        *(
            Parameter(name, "query", f"Only with this {name}.")
            for name in ("status", "country", "currency", "customer_id")
        ),
        Parameter("placed_from", "query", "Only placed at this time or later.", _TIME),
        Parameter("placed_to", "query", "Only placed before this time.", _TIME),
        Parameter("updated_from", "query", "Only updated at this time or later.", _TIME),
        *_limit(500),
    ],
    answers={200: DocumentedResponse(_LISTED, _page("orders"))},
    problems=_MALFORMED,
)
ERASE = Documentation(
    summary="Erase an order for good",
    text="Removes its row, raw document, retries and dead letters. Queued entries and entries in flight end without effect, and the "
    "order is not stored again. It need not exist. After a 503, repeat the request, because the order may be erased already.",
    parameters=[ORDER_ID],
    answers={
        200: DocumentedResponse(
            "The order is erased.",
            {
                "type": "object",
                "required": ["order_id", "removed"],
                "properties": _ORDER_ID
                | {"removed": {"type": "object", "required": ["rows", "retries", "dead_letters"]}},
            },
        )
    },
    problems={422: "The ID in the path is invalid, or there is a query."},
)
QUEUE = Documentation(
    summary="The state of the queue",
    answers={
        200: DocumentedResponse(
            "Depth, pending entries, retries, dead letters, and age of the oldest order, by lane.", {"type": "object"}
        )
    },
    problems=_MALFORMED,
)
CONSUMERS = Documentation(
    summary="The consumers of the queue",
    text="The processes that read it, with their heartbeats and open circuits, by name.",
    parameters=_limit(1000),
    answers={200: DocumentedResponse(_LISTED, _page("consumers"))},
    problems=_MALFORMED,
)
RETRIES = Documentation(
    summary="List orders that wait for a retry",
    text="The soonest first. A page before the last one may contain fewer elements than the limit, or none.",
    parameters=[
        *_limit(500),
        _several("order_id", "Only these orders."),
        _several("reason", f"Only for these reasons: {', '.join(RetryReason)}."),
    ],
    answers={200: DocumentedResponse(_LISTED, _page("retries"))},
    problems=_MALFORMED,
)
RUN_NOW = Documentation(
    summary="Run retries now",
    text="Workers read them within a second or two. The audit log has each change.",
    bodies={JSON: RetriesBody},
    answers={200: DocumentedResponse("How many.", _CHANGED)},
    problems=_NOT_SELECTED,
)
DEAD_LETTER = Documentation(
    summary="Dead-letter retries",
    text="They become dead letters with the reason `attempts_exhausted`. The audit log has each change.",
    bodies={JSON: RetriesBody},
    answers={200: DocumentedResponse("How many.", _CHANGED)},
    problems=_NOT_SELECTED,
)
DEAD_LETTERS = Documentation(
    summary="List dead letters",
    text="The newest first, without documents. A page before the last one may contain fewer elements than the limit, or none.",
    parameters=[
        *_limit(500),
        _several("id", "Only dead letters with this ID, or of this order."),
        _several("reason", "Only for these reasons."),
        Parameter("since", "query", "Only dead-lettered at this time or later.", _TIME),
        Parameter("until", "query", "Only dead-lettered before this time.", _TIME),
    ],
    answers={200: DocumentedResponse(_LISTED, _page("dead_letters"))},
    problems=_MALFORMED,
)
SHOW_DEAD_LETTER = Documentation(
    summary="Show a dead letter",
    text="With all its fields, also its document.",
    parameters=[Parameter("entry", "path", "The dead letter's own ID.", is_required=True)],
    answers={
        200: DocumentedResponse(
            "The dead letter.", {"type": "object", "required": ["id", "order_id", "reason", "fields"]}
        )
    },
    problems={404: "There is no such dead letter.", **_MALFORMED},
)
REPLAY = Documentation(
    summary="Replay dead letters",
    text="They go back into the queue with fresh attempts. The audit log has each change.",
    bodies={JSON: DeadLettersBody},
    answers={200: DocumentedResponse("How many.", _CHANGED)},
    problems=_NOT_SELECTED,
)
DROP = Documentation(
    summary="Delete dead letters",
    text="Permanently. The audit log has each change.",
    bodies={JSON: DeadLettersBody},
    answers={200: DocumentedResponse("How many.", _CHANGED)},
    problems=_NOT_SELECTED,
)
