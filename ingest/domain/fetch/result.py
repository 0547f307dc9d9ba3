"""The result of fetching an order: its document, or the reason why there is none."""

from datetime import datetime

import msgspec

from ingest.domain.errors import Fault
from ingest.domain.fetch.exchange import Exchange


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """An order's document, as the external API sent it.

    Attributes:
        requested_at: when the request began. A document cannot be older than that, so of two documents without their own
            version, the one requested later is the newer one. Time spent on failed tries does not count.
    """

    body: bytes
    requested_at: datetime
    exchange: Exchange


# With garbage collection, because the traceback of a raised fault leads back to it.
class Failed(msgspec.Struct, frozen=True):
    """An order that could not be fetched.

    Attributes:
        is_shared: whether the request failed as a whole, and any of its several orders may be the cause.
    """

    fault: Fault
    exchange: Exchange
    is_shared: bool = False


def document_of(result: Fetched | Failed) -> bytes:
    """The document, for a caller that cannot continue without it.

    Raises:
        Fault: the order could not be fetched.
    """
    if isinstance(result, Failed):
        raise result.fault
    return result.body
