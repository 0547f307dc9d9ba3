"""The list endpoint, which returns several orders in one request: `GET /orders?ids=a,b,c`.

A POST contains the IDs in its body, as `{"id": "a"}`, or `{"ids": ["a", "b"]}` for a list.

As in most shops, orders that do not exist are missing from the response. The response is `{"orders":[…]}` in the order
of the request, or only the array with `list_shape=array`.
"""

from http import HTTPStatus
from urllib.parse import quote, unquote_to_bytes

import msgspec

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.catalogue import ORDERS, Catalogue
from ingest.lab.upstream.responses import Response, problem

LIST = ORDERS.rstrip(b"/")
"""The path of the list endpoint."""

_SERVED = str(int(HTTPStatus.OK))
_AROUND = {"object": (b'{"orders":[', b"]}"), "array": (b"[", b"]")}


def listed_keys(query: bytes) -> list[bytes]:
    """Return the keys of the orders in the query of a request, or an empty list without the parameter `ids`."""
    for parameter in query.split(b"&"):
        name, _, value = parameter.partition(b"=")
        if name == b"ids" and value:
            # As most APIs do, it decodes the value before it divides it, so that no ID can contain a comma.
            return [ORDERS + order_id for order_id in unquote_to_bytes(value).split(b",")]
    return []


class _Posted(msgspec.Struct, frozen=True):
    """The body of a request for one order, or for several."""

    id: str = ""
    ids: list[str] | str = []


def posted_target(body: bytes) -> tuple[bytes, bytes]:
    """Return path and query of the GET that is equivalent to a POST with this body. An unreadable body contains no order."""
    try:
        posted = msgspec.json.decode(body, type=_Posted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        posted = _Posted()
    if posted.id:
        return ORDERS + posted.id.encode(), b""
    ids = posted.ids if isinstance(posted.ids, str) else ",".join(posted.ids)
    return LIST, b"ids=" + quote(ids, safe=",").encode()


def listing(catalogue: Catalogue, keys: list[bytes], behaviour: Behaviour) -> Response:
    """Return the documents of the orders that exist, or reject a request without IDs or with too many.

    Args:
        catalogue: contains the orders.
        keys: keys of the requested orders.
        behaviour: limits the number of orders, and sets the shape of the list.
    """
    if not keys:
        return problem(HTTPStatus.BAD_REQUEST, "the query does not contain ids, such as ids=a,b,c")
    if len(keys) > behaviour.list_limit:
        return problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"{len(keys)} ids are more than the limit of {behaviour.list_limit}"
        )
    found = [given for key in keys if (given := catalogue.response(key)).label == _SERVED]
    before, after = _AROUND[behaviour.list_shape]
    body = before + b",".join(given.payload.partition(b"\r\n\r\n")[2] for given in found) + after
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Response(head + body, _SERVED)
