"""Keeps the raw document of an order with its row, where PostgreSQL can hold it."""

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.kept_document import storable_document
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("documents")
# Bytes of the copies of one document that is kept with several orders: all are in one statement, and PostgreSQL takes some 50 ms for each MB.
_MOST = 32 * 1024 * 1024


class KeptDocuments:
    """Says what to keep of each document.

    Args:
        not_kept: counts documents that cannot be kept; their orders are stored without them.
    """

    def __init__(self, not_kept: Counter) -> None:
        self._not_kept = not_kept

    def of(self, body: bytes, request: FetchRequest, orders: int) -> bytes | None:
        """What is stored with each of the orders of a document."""
        kept = storable_document(body) if orders == 1 or orders * len(body) <= _MOST else None
        if kept is None:
            self._not_kept.inc()
            _log.warning("document_not_kept", order_id=request.order_id)
        return kept
