"""A request for an order, and what the external API sends for it."""

from datetime import datetime

import msgspec


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    """What the upstream port is asked for.

    Attributes:
        order_id: the order.
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


class Exchange:
    """One HTTP request and its end; the orders that were fetched by it share it.

    The circuit breaker and the concurrency limit count exchanges, not orders.

    Attributes:
        requests: what it was sent for.
        started_at: monotonic seconds.
    """

    __slots__ = ("_is_counted", "requests", "started_at")

    def __init__(self, requests: tuple[FetchRequest, ...], started_at: float) -> None:
        self.requests = requests
        self.started_at = started_at
        self._is_counted = False

    def count(self) -> bool:
        """Whether this is the first of its orders to be counted."""
        is_first, self._is_counted = not self._is_counted, True
        return is_first


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """An order's document, as the external API sent it.

    Attributes:
        body: what was sent.
        asked_at: when the request that it answers began. A document cannot be older than that, so of two that have
            no version of their own, the one requested later is the newer; time spent on failed tries does not count.
        exchange: set if the document came with those of other orders; else the request was the order's own.
    """

    body: bytes
    asked_at: datetime
    exchange: Exchange | None = None
