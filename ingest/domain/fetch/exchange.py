"""A request for an order, and the HTTP request that is sent for it."""

import msgspec


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    """A request to the upstream port.

    Attributes:
        attempt: the number of the attempt at the order, from 1.
        traceparent: the W3C trace context to send, if the entry contains a valid one.
        together: the maximum number of orders in the HTTP request, or 0 for the usual number.
        linked: the trace contexts of the orders, of a request for several orders that are in different traces.
    """

    order_id: str
    attempt: int = 1
    traceparent: str | None = None
    together: int = 0
    linked: tuple[str, ...] = ()


class Exchange(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One HTTP request and its response, shared by the orders that it was sent for.

    The circuit breaker and the concurrency limit count exchanges, not orders.

    Attributes:
        requests: the requests for these orders.
        started_at: monotonic seconds.
    """

    requests: tuple[FetchRequest, ...]
    started_at: float
