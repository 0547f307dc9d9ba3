"""The operations of the API as requests that are ready to be sent, with their expected responses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ingest.bench.clients import Request, http_request
from ingest.lab.session import order_ids
from ingest.lab.upstream.samples import sample_orders

_DISTINCT = 10_000
STREAMED = 100_000
"""Default number of orders in one streamed request."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        title: display name.
        requests: makes the requests to draw from.
        orders: orders in one request.
        clients: number of clients, or None for the plan's number.
        limit_ms: limit of the 99.9th percentile of the latency, or None.
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


def _delete() -> list[Request]:
    return [Request(http_request("DELETE", f"/v1/orders/{name}"), 200, b"{") for name in stored_ids()]


def stored_ids() -> list[str]:
    """The orders in the table for operations that read."""
    return list(islice(sample_orders(), _DISTINCT))


def _json(method: str, path: str, body: bytes) -> bytes:
    return http_request(method, path, body, content_type="application/json")


def streaming(orders: int) -> Operation:
    """Announce this number of orders with each request."""
    return Operation(f"POST, {orders:,} orders streamed", partial(_ndjson, orders), orders=orders, clients=4)


POST = Operation("POST, one order", _post, limit_ms=150)
NDJSON = streaming(STREAMED)
GET = Operation("GET", _get, limit_ms=100)
PUT = Operation("PUT, a whole order", _put, limit_ms=200)
DELETE = Operation("DELETE, 4 connections", _delete, clients=4, limit_ms=200)
