"""The list endpoint: several orders with one request, `GET /orders?ids=a,b,c`.

An order that does not exist is missing from the answer, as from those of most shops. The answer is `{"orders":[…]}`, in the order
of the request; with `list_shape=array`, the array alone. A shop's list has its documents, and is where that shop has it.
"""

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from ingest.lab.upstream.answers import Answer, problem
from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.catalogue import ORDERS, Catalogue

LIST = ORDERS.rstrip(b"/")
"""The path of the list endpoint."""

_SERVED = str(int(HTTPStatus.OK))
_AROUND = {"object": (b'{"orders":[', b"]}"), "array": (b"[", b"]")}


def listed_keys(query: bytes, ids: bytes = b"ids") -> list[bytes]:
    """Return the keys of the orders that the query of a request names; none if it does not have the parameter with the IDs."""
    for parameter in query.split(b"&"):
        name, _, value = parameter.partition(b"=")
        if name == ids and value:
            return [ORDERS + unquote_to_bytes(order_id) for order_id in unquote_to_bytes(value).split(b",")]
    return []


def listing(
    catalogue: Catalogue,
    keys: list[bytes],
    behaviour: Behaviour,
    around: tuple[bytes, bytes] | None = None,
    render: Callable[[bytes, bytes], bytes] = lambda _key, document: document,
) -> Answer:
    """Return the documents of those orders that exist, or refuse the request: no IDs, or too many.

    Args:
        catalogue: has the orders.
        keys: of those requested.
        behaviour: limits how many.
        around: what is before and after them; None: by the behaviour.
        render: makes the element of a key and its document.
    """
    if not keys:
        return problem(HTTPStatus.BAD_REQUEST, "the query has no ids, such as ids=a,b,c")
    if len(keys) > behaviour.list_limit:
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{len(keys)} ids, more than {behaviour.list_limit}")
    found = [(key, given) for key in keys if (given := catalogue.answer(key)).label == _SERVED]
    before, after = around or _AROUND[behaviour.list_shape]
    elements = (render(key, given.payload.partition(b"\r\n\r\n")[2]) for key, given in found)
    body = before + b",".join(elements) + after
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Answer(head + body, _SERVED)
