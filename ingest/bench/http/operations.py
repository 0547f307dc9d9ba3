"""What the clients send: each operation of the API as requests that are ready to be sent, with their right answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ingest.bench.clients import Request, http_request
from ingest.lab.session import order_ids
from ingest.lab.upstream.samples import sample_orders

_DISTINCT = 10_000
STREAMED = 100_000
"""Orders of one streamed request, unless others are asked for."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        title: for people.
        requests: makes the requests to draw from.
        orders: that one request announces, reads or pushes.
        clients: at a time; None for as many as are asked for.
        limit_ms: within which 99.9 % have to be answered; None where none is set.
    """

    title: str
    requests: Callable[[], Sequence[Request]]
    orders: int = 1
    clients: int | None = None
    limit_ms: float | None = None


def _post() -> list[Request]:
    return [
        Request(_json("POST", "/v1/orders", b'{"order_ids":["%s"]}' % name.encode()), 202, b'{"accepted":1,')
        for name in order_ids(_DISTINCT, sample_orders(), "BENCH")
    ]


def _ndjson(orders: int) -> list[Request]:
    body = b"".join(b"BENCH-%d\n" % number for number in range(orders))
    sent = http_request("POST", "/v1/orders", body, content_type="application/x-ndjson")
    return [Request(sent, 202, b'{"accepted":%d,' % orders)]


def _get() -> list[Request]:
    return [Request(http_request("GET", f"/v1/orders/{name}"), 200, b"{") for name in stored_ids()]


def _put() -> list[Request]:
    documents = islice(sample_orders().items(), _DISTINCT)
    return [Request(_json("PUT", f"/v1/orders/{name}", body), 202, b"{") for name, body in documents]


def stored_ids() -> list[str]:
    """The orders that are in the table while orders are read."""
    return list(islice(sample_orders(), _DISTINCT))


def _json(method: str, path: str, body: bytes) -> bytes:
    return http_request(method, path, body, content_type="application/json")


def streaming(orders: int) -> Operation:
    """Announce this many orders with each request."""
    return Operation(f"POST, {orders:,} orders streamed", partial(_ndjson, orders), orders=orders, clients=4)


POST = Operation("POST, one order", _post, limit_ms=150)
NDJSON = streaming(STREAMED)
GET = Operation("GET", _get, limit_ms=100)
PUT = Operation("PUT, a whole order", _put, limit_ms=200)
