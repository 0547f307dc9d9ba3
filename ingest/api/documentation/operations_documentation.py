"""The OpenAPI documentation of the routes of orders and operations."""

from ingest.api.documentation.documentation import ORDER_ID, TEXT, Documentation, Parameter, Schema
from ingest.domain.orders.order_filter import CRITERIA
from ingest.domain.orders.order_history import HistoryEvent
from ingest.operations.stored_orders.order_json import ErasedOrder, HistoryList, OrderList, ShownOrder

TIME: Schema = {"type": "string", "format": "date-time"}
_INVALID_ID = "The ID in the path is invalid, or there is a query."


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
    text="The stored order and its state in the queue. See the page on finding orders. If the queue is too long to be searched, or "
    "Redis is unavailable, the state is `unknown`.",
    parameters=[ORDER_ID],
    schema=ShownOrder,
    problems={422: _INVALID_ID},
)
PAGE = Documentation(
    text="In the order of their IDs, or of their last change with `stored_from` or `stored_to`, without lines and attributes. A "
    "filter that few orders match may take too long: 503 with the code `query_too_slow`. `ingest migrate --search-indexes` "
    "creates indexes for it.",
    parameters=[
        *(
            Parameter(name, "query", each.description, TIME if each.is_time else TEXT)
            for name, each in CRITERIA.items()
        ),
        several("attribute", "Only with this attribute, as `name=value`."),
        *paging(500),
    ],
    schema=OrderList,
)
HISTORY = Documentation(
    text="The newest event first. Each has `at` and `event`: "
    + ", ".join(f"`{event}`" for event in HistoryEvent)
    + ". It is empty unless workers keep a history, see `INGEST_HISTORY`.",
    parameters=[ORDER_ID, *paging(500)],
    schema=HistoryList,
    problems={422: "The ID in the path is invalid, or a parameter is unknown, repeated or malformed."},
)
ERASE = Documentation(
    text="Removes its row, raw document, retries and dead letters. Queued entries and entries in flight end without effect, and the "
    "order is not stored again. It need not exist. After a 503, repeat the request, because the order may be erased already.",
    parameters=[ORDER_ID],
    response="The order is erased.",
    schema=ErasedOrder,
    problems={422: _INVALID_ID},
)
