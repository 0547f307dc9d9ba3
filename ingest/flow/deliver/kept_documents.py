"""Keeps the raw document of an order with its row, if PostgreSQL can store it."""

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.clean_json import storable_document
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("documents")
# Bytes of all copies of a document with several orders. They are in one statement, and PostgreSQL takes about 50 ms for each MB.
_MOST = 32 * 1024 * 1024


class KeptDocuments:
    """Selects the documents to keep.

    Args:
        not_kept: counts documents that cannot be kept, whose orders are stored without them.
    """

    def __init__(self, not_kept: Counter) -> None:
        self._not_kept = not_kept

    def of(self, body: bytes, request: FetchRequest, orders: int) -> bytes | None:
        """Return the document to store with each of its orders, or None."""
        kept = storable_document(body) if orders == 1 or orders * len(body) <= _MOST else None
        if kept is None:
            self._not_kept.inc()
            _log.warning("document_not_kept", order_id=request.order_id)
        return kept
