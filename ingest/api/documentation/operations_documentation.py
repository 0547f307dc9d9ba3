"""The OpenAPI documentation of the routes of orders and operations."""

from ingest.api.documentation.documentation import ORDER_ID, TEXT, Documentation, Parameter, Schema, object_schema
from ingest.domain.orders.order_history import HistoryEvent
from ingest.domain.orders.order_state import IngestionState

TIME: Schema = {"type": "string", "format": "date-time"}
_OPTIONAL: Schema = {"type": ["string", "null"]}
_OPTIONAL_OBJECT: Schema = {"type": ["object", "null"]}
_FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
LISTED = "A page. `next_cursor` is the parameter `cursor` of the next request, or null after the last page."
MALFORMED = {422: "A parameter is unknown, repeated or malformed. `parameter` names it."}
_INVALID_ID = "The ID in the path is invalid, or there is a query."
_INGESTION = object_schema(
    "state",
    "searched",
    "entries",
    state={"enum": [state.value for state in IngestionState]},
    searched=_FLAG,
    problem=TEXT,
    entries={"type": "array", "items": object_schema("state", "entry_id")},
)


def page_schema(member: str, **further: Schema) -> Schema:
    """The schema of a page with this array, and with further members."""
    elements: Schema = {"type": "array", "items": {"type": "object"}}
    return object_schema(member, "next_cursor", *further, **{member: elements, "next_cursor": _OPTIONAL}, **further)


def paging(most: int) -> list[Parameter]:
    """The parameters of a list with pages of at most `most` elements."""
    limit: Schema = {"type": "integer", "minimum": 1, "maximum": most}
    return [
        Parameter("limit", "query", "Maximum number of elements in a page.", limit),
        Parameter("cursor", "query", "Where the page begins: `next_cursor` of the page before."),
    ]


def several(name: str, text: str) -> Parameter:
    """A parameter of a query that may be repeated."""
    return Parameter(name, "query", text, {"type": "array", "items": TEXT})


SHOW = Documentation(
    summary="Find an order",
    text="The stored order and its state in the queue. See the page on finding orders. If the queue is too long to be searched, or "
    "Redis is unavailable, the state is `unknown`.",
    parameters=[ORDER_ID],
    response="The order, and its state in the queue.",
    schema=object_schema(
        "source",
        "order_id",
        "order",
        "row",
        "erased_at",
        "ingestion",
        source=TEXT,
        order_id=TEXT,
        order=_OPTIONAL_OBJECT,
        row=_OPTIONAL_OBJECT,
        erased_at=_OPTIONAL,
        ingestion=_INGESTION,
    ),
    problems={404: "The order was not found.", 422: _INVALID_ID},
)
PAGE = Documentation(
    summary="List stored orders",
    text="In the order of their IDs, or of their last change with `stored_from` or `stored_to`, without lines and attributes. A "
    "filter that few orders match may take too long: 503 with the code `query_too_slow`. `ingest migrate --search-indexes` "
    "creates indexes for it.",
    parameters=[
        *(
            Parameter(name, "query", f"Only with this {name}.")
            for name in ("status", "country", "currency", "customer_id")
        ),
        Parameter("prefix", "query", "Only with an ID that begins with this text."),
        several("attribute", "Only with this attribute, as `name=value`."),
        Parameter("placed_from", "query", "Only placed at this time or later.", TIME),
        Parameter("placed_to", "query", "Only placed before this time.", TIME),
        Parameter("updated_from", "query", "Only updated at this time or later.", TIME),
        Parameter("stored_from", "query", "Only with a row that last changed at this time or later.", TIME),
        Parameter("stored_to", "query", "Only with a row that last changed before this time.", TIME),
        *paging(500),
    ],
    response=LISTED,
    schema=page_schema("orders"),
    problems=MALFORMED,
)
HISTORY = Documentation(
    summary="Show the history of an order",
    text="The newest event first. Each has `at` and `event`: "
    + ", ".join(f"`{event}`" for event in HistoryEvent)
    + ". It is empty unless workers keep a history, see `INGEST_HISTORY`.",
    parameters=[ORDER_ID, *paging(500)],
    response=LISTED,
    schema=page_schema("history"),
    problems={422: "The ID in the path is invalid, or a parameter is unknown, repeated or malformed."},
)
ERASE = Documentation(
    summary="Erase an order for good",
    text="Removes its row, raw document, retries and dead letters. Queued entries and entries in flight end without effect, and the "
    "order is not stored again. It need not exist. After a 503, repeat the request, because the order may be erased already.",
    parameters=[ORDER_ID],
    response="The order is erased.",
    schema=object_schema(
        "order_id", "removed", order_id=TEXT, removed=object_schema("rows", "retries", "dead_letters")
    ),
    problems={422: _INVALID_ID},
)
