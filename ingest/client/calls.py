"""The requests that both clients make, as functions of what sends them."""

from collections.abc import Iterable
from typing import Any

import msgspec

from ingest.client.answers import accepted, json_object
from ingest.client.connection import Request
from ingest.client.errors import ApiError, UnexpectedAnswer
from ingest.client.pages import Filters, OrdersPage, page_of
from ingest.client.retrying import Retrying
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.orders.order import parse_order_id

_PATH = "/v1/orders"


async def announce_list(
    calls: Retrying, order_ids: list[str], key: str, options: dict[str, Any], before: Accepted
) -> Accepted:
    """Announce the orders of one request: all of them, or none.

    Args:
        calls: sends requests.
        order_ids: valid IDs.
        key: the idempotency key.
        options: what else the body has.
        before: the orders that were accepted before, to be added.
    """
    body = msgspec.json.encode({"order_ids": order_ids, **options})
    return await _sum(calls, Request("POST", _PATH, body, "application/json", key), before)


async def announce_lines(calls: Retrying, order_ids: Iterable[str], key: str, before: Accepted) -> Accepted:
    """As `announce_list`, as NDJSON. The IDs are checked here."""
    lines = "".join(f"{parse_order_id(name)}\n" for name in order_ids).encode()
    return await _sum(calls, Request("POST", _PATH, lines, "application/x-ndjson", key), before)


async def push(calls: Retrying, order_id: str, document: bytes) -> Accepted:
    """Push an order."""
    return accepted(await calls.send(Request("PUT", f"{_PATH}/{order_id}", document, "application/json")))


async def read(calls: Retrying, path: str) -> dict[str, Any]:
    """The content at a path."""
    return json_object(await calls.send(Request("GET", path)))


async def read_page(calls: Retrying, filters: Filters, cursor: str | None) -> OrdersPage:
    """One page of orders, after the one whose cursor is given."""
    page = page_of(await read(calls, f"{_PATH}{filters.query(cursor)}"))
    if page.cursor is not None and page.cursor == cursor:
        raise UnexpectedAnswer("the list of orders does not continue")
    return page


async def erase(calls: Retrying, order_id: str) -> None:
    """Erase an order."""
    answer = json_object(await calls.send(Request("DELETE", f"{_PATH}/{parse_order_id(order_id)}")))
    if answer.get("order_id") != order_id:
        raise UnexpectedAnswer("the answer does not confirm that the order is erased: is this the URL of the API?")


async def _sum(calls: Retrying, request: Request, before: Accepted) -> Accepted:
    try:
        told = accepted(await calls.send(request))
    except ApiError as error:
        # Of NDJSON, the lines before the problem are in the queue.
        told_here = [error.members.get(name) for name in ("accepted", "duplicates")]
        here = sum(number for number in told_here if isinstance(number, int))
        error.accepted = before.accepted + before.duplicates + here
        raise
    return Accepted(before.accepted + told.accepted, before.duplicates + told.duplicates)
