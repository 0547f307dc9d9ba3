"""What becomes of a delivery: the handler decides it, settlement applies it."""

from datetime import datetime

import msgspec

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.orders.plain_order import StorableOrder


class Store(msgspec.Struct, frozen=True, gc=False):
    """The document is valid: store its orders, then ack.

    Attributes:
        orders: none, one or several; all are committed together.
        fetched_at: when the document was requested, or pushed.
        size: bytes of the document, or of what user code has made of it; buffer space for them has been acquired.
        document: the document, if it is to be kept.
    """

    orders: tuple[StorableOrder, ...]
    fetched_at: datetime
    size: int
    document: bytes | None = None


class Retry(msgspec.Struct, frozen=True):
    """The order could not be fetched now: schedule another delivery.

    Attributes:
        after: seconds from now.
        attempt: the `attempt` of the next delivery.
        reason: why, for counting.
        error: what went wrong, for people.
    """

    after: float
    attempt: int
    reason: RetryReason
    error: str


class DeadLetter(msgspec.Struct, frozen=True):
    """No retry will help: move the entry to the dead letters."""

    reason: DeadReason
    error: str


class Release(msgspec.Struct, frozen=True):
    """The order is not to blame: hand the entry back to the group, uncounted and claimable at once.

    Attributes:
        cause: why this process does not finish it, for people.
    """

    cause: str


Outcome = Store | Retry | DeadLetter | Release
