"""The list endpoint: several orders with one request, `GET /orders?ids=a,b,c`.

An order that does not exist is missing from the answer, as from those of most shops. The answer is `{"orders":[…]}`, in the order
of the request; with `list_shape=array`, the array alone.
"""

from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from ingest.lab.upstream.answers import Answer, problem
from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.catalogue import ORDERS, Catalogue

LIST = ORDERS.rstrip(b"/")
"""The path of the list endpoint."""

_SERVED = str(int(HTTPStatus.OK))
_AROUND = {"object": (b'{"orders":[', b"]}"), "array": (b"[", b"]")}


def listed_keys(query: bytes) -> list[bytes]:
    """Return the keys of the orders that the query of a request names; none if it has no `ids`."""
    for parameter in query.split(b"&"):
        name, _, value = parameter.partition(b"=")
        if name == b"ids" and value:
            return [ORDERS + unquote_to_bytes(order_id) for order_id in unquote_to_bytes(value).split(b",")]
    return []


def listing(catalogue: Catalogue, keys: list[bytes], behaviour: Behaviour) -> Answer:
    """Return the documents of those orders that exist, or refuse the request: no IDs, or too many."""
    if not keys:
        return problem(HTTPStatus.BAD_REQUEST, "the query has no ids, such as ids=a,b,c")
    if len(keys) > behaviour.list_limit:
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{len(keys)} ids, more than {behaviour.list_limit}")
    answers = map(catalogue.answer, keys)
    before, after = _AROUND[behaviour.list_shape]
    body = (
        before
        + b",".join(found.payload.partition(b"\r\n\r\n")[2] for found in answers if found.label == _SERVED)
        + after
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Answer(head + body, _SERVED)
