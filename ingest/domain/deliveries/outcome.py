"""The outcomes of a delivery, decided by the handler and applied by settlement."""

from datetime import datetime

import msgspec

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.orders.plain_order import StorableOrder


class Store(msgspec.Struct, frozen=True, gc=False):
    """The document is valid. Store its orders, then ack.

    Attributes:
        orders: any number of orders, which are committed together.
        fetched_at: when the document was requested, or pushed.
        size: bytes of the document or of the transform's result, for which buffer space has been acquired.
        document: the document, if it is to be kept.
    """

    orders: tuple[StorableOrder, ...]
    fetched_at: datetime
    size: int
    document: bytes | None = None


class Retry(msgspec.Struct, frozen=True):
    """The order could not be fetched now. Schedule another delivery.

    Attributes:
        after: seconds from now.
        attempt: the `attempt` of the next delivery.
        reason: the label in the metrics.
    """

    after: float
    attempt: int
    reason: RetryReason
    error: str


class DeadLetter(msgspec.Struct, frozen=True):
    """No retry will help. Move the entry to the dead letters."""

    reason: DeadReason
    error: str


class Release(msgspec.Struct, frozen=True):
    """The order is not to blame. Release the entry to the group, uncounted and immediately claimable.

    Attributes:
        cause: why this process does not finish it.
    """

    cause: str


Outcome = Store | Retry | DeadLetter | Release
