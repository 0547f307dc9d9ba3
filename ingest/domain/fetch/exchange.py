"""Requests for orders, and the documents that the external API returns."""

from datetime import datetime

import msgspec


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    """A request to the upstream port.

    Attributes:
        order_id: the order.
        attempt: the number of this attempt at the order, from 1.
        traceparent: the W3C trace context to send, if the entry contains a valid one.
        source: the producer or webhook source that enqueued the order, if known.
        together: maximum number of orders in the HTTP request for this order, or 0 for the usual number.
    """

    order_id: str
    attempt: int = 1
    traceparent: str | None = None
    source: bytes | None = None
    together: int = 0


class Exchange:
    """One HTTP request with its result, shared by the orders that it fetches.

    The circuit breaker and the concurrency limit count exchanges, not orders.

    Attributes:
        requests: the orders that it fetches.
        started_at: monotonic seconds.
    """

    __slots__ = ("_is_counted", "requests", "started_at")

    def __init__(self, requests: tuple[FetchRequest, ...], started_at: float) -> None:
        self.requests = requests
        self.started_at = started_at
        self._is_counted = False

    def count(self) -> bool:
        """Count one of its orders, and return whether it is the first."""
        is_first, self._is_counted = not self._is_counted, True
        return is_first


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """An order's document, as sent by the external API.

    Attributes:
        body: the document.
        requested_at: when the successful try began. A document cannot be older than this, so if two documents contain
            no version, the document that was requested later is the newer.
        exchange: set if the request was for several orders.
    """

    body: bytes
    requested_at: datetime
    exchange: Exchange | None = None
