"""A request for an order, and the HTTP request that is sent for it."""

import msgspec


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    """What the upstream port is asked for.

    Attributes:
        attempt: which attempt at the order this is, from 1.
        traceparent: the W3C trace context to send, if the entry contains a valid one.
        source: which producer or webhook source announced the order, if the entry says so.
        together: how many orders one HTTP request for this one may be sent for, at most; 0 for as many as usual.
    """

    order_id: str
    attempt: int = 1
    traceparent: str | None = None
    source: bytes | None = None
    together: int = 0


class Exchange(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One HTTP request and its response, shared by the orders that it was sent for.

    The circuit breaker and the concurrency limit count exchanges, not orders.

    Attributes:
        requests: the requests for these orders.
        started_at: monotonic seconds.
    """

    requests: tuple[FetchRequest, ...]
    started_at: float
