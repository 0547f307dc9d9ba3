"""Requests for orders by POST, with the IDs in the body: `{"id": "a"}`, or `{"ids": ["a", "b"]}` for a list."""

from typing import NamedTuple

import msgspec


class Posted(msgspec.Struct, frozen=True):
    """The body of a request.

    Attributes:
        id: of one order.
        ids: of several.
    """

    id: str = ""
    ids: list[str] | str = []


class PostedQuery(NamedTuple):
    """The orders requested in a body.

    Attributes:
        order_id: one order; empty if it is a list.
        ids: orders of a list, separated by commas, as the query of a GET has them.
    """

    order_id: bytes
    ids: bytes


_decode = msgspec.json.Decoder(Posted).decode


def posted_query(body: bytes) -> PostedQuery:
    """Read the body of a request; what cannot be read asks for no order."""
    try:
        posted = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return PostedQuery(b"", b"")
    ids = posted.ids if isinstance(posted.ids, str) else ",".join(posted.ids)
    return PostedQuery(posted.id.encode(), ids.encode())
