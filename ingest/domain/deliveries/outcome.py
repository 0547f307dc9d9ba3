"""The outcomes of a delivery, decided by the handler and applied by settlement, and the delay of a retry."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.exponential_pause import exponential_pause
from ingest.domain.orders.plain_order import StorableOrder

FIRST_DELAY = 1.0
LONGEST_DELAY = 300.0


class Store(msgspec.Struct, frozen=True, gc=False):
    """The document is valid. Store its orders, then ack.

    Attributes:
        orders: any number of orders, which are committed together.
        fetched_at: when the document was requested, or pushed.
        size: bytes of the document or of the transform's result, for which buffer space has been acquired.
        document: the document, if it is to be kept.
        took: seconds of the request, if they are recorded.
    """

    orders: tuple[StorableOrder, ...]
    fetched_at: datetime
    size: int
    document: bytes | None = None
    took: float | None = None


class Retry(msgspec.Struct, frozen=True):
    """The order could not be fetched now. Schedule another delivery.

    Attributes:
        after: seconds from now.
        attempt: the `attempt` of the next delivery.
        reason: the label in the metrics.
        took: seconds of the request, if they are recorded.
    """

    after: float
    attempt: int
    reason: RetryReason
    error: str
    took: float | None = None


class DeadLetter(msgspec.Struct, frozen=True):
    """No retry will help. Move the entry to the dead letters.

    Attributes:
        took: seconds of the request, if they are recorded.
    """

    reason: DeadReason
    error: str
    took: float | None = None


class Release(msgspec.Struct, frozen=True):
    """The order is not to blame. Release the entry to the group, uncounted and immediately claimable.

    Attributes:
        cause: why this process does not finish it.
    """

    cause: str


Outcome = Store | Retry | DeadLetter | Release


def retry_delay(attempt: int, draw: Callable[[float, float], float]) -> float:
    """Return the seconds to wait after the failed attempt number `attempt` (from 1).

    Exponential backoff with full jitter: a random time up to 1 s · 2^(attempt-1), capped at 5 minutes.
    Orders that failed together are therefore not retried together (Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015).
    `draw` returns a uniform random number between its two arguments.
    """
    return draw(0.0, exponential_pause(FIRST_DELAY, LONGEST_DELAY, attempt - 1))
