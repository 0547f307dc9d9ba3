"""Requests for orders by POST with the IDs in the body, as `{"id": "a"}` or as `{"ids": ["a", "b"]}` for a list."""

from typing import NamedTuple
from urllib.parse import quote

import msgspec


class Posted(msgspec.Struct, frozen=True):
    """The body of a request.

    Attributes:
        id: ID of one order.
        ids: IDs of several orders.
    """

    id: str = ""
    ids: list[str] | str = []


class PostedQuery(NamedTuple):
    """The orders requested in a body.

    Attributes:
        order_id: ID of one order, or empty for a list.
        ids: IDs of a list separated by commas and percent-encoded, as in the query of a GET.
    """

    order_id: bytes
    ids: bytes


_decode = msgspec.json.Decoder(Posted).decode


def posted_query(body: bytes) -> PostedQuery:
    """Read the body of a request. An unreadable body contains no order."""
    try:
        posted = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return PostedQuery(b"", b"")
    ids = posted.ids if isinstance(posted.ids, str) else ",".join(posted.ids)
    return PostedQuery(posted.id.encode(), quote(ids, safe=",").encode())
