"""Fetches an order again that the external API has already shown elsewhere, and does not show yet.

A signed webhook or a list is evidence that an order exists, and of its version. The shop may serve requests from a replica or an index that
is some seconds behind. Such an order is fetched again for a minute, with growing pauses, before the response counts.

The entry contains everything that decides. If the process dies here, another one continues.
"""

from collections.abc import Callable
from datetime import datetime

from ingest.domain.deliveries.delivery import Delivery, RetryReason
from ingest.domain.deliveries.outcome import Retry, Store
from ingest.domain.orders.clean_json import ignored
from ingest.telemetry.logs import get_logger

_log = get_logger("expected_version")
_WITHIN = 60.0
_FIRST_PAUSE = 1.0
# Outdated documents in a row, after which the list shows other times than the documents.
_MOST_OUTDATED = 5


class ExpectedVersions:
    """The expectations of one source in one process.

    Args:
        draw: returns a uniform random number between its arguments, for the pauses.
        on_outdated: called for each document that is stored although it is older than expected.
    """

    def __init__(self, draw: Callable[[float, float], float], on_outdated: Callable[[], None] = ignored) -> None:
        self._draw = draw
        self._on_outdated = on_outdated
        self._outdated = 0

    def after_not_found(self, delivery: Delivery, error: str) -> Retry | None:
        """Return the retry of an order that exists and was not found, or None after a minute or without evidence."""
        if delivery.expected_version() is None:
            return None
        return self._retry(delivery, RetryReason.NOT_FOUND, f"{error}: a webhook or a list shows that the order exists")

    def after_document(self, delivery: Delivery, store: Store) -> Retry | None:
        """Return the retry of an order whose document is older than expected, or None if the document counts."""
        if (expected := delivery.expected_version()) is None:
            return None
        versions = [order.updated_at for order in store.orders if order.updated_at is not None]
        if not versions or max(versions) >= _in_the_unit_of(max(versions), expected):
            self._outdated = 0 if versions else self._outdated
            return None
        error = f"the document is of {_shown(max(versions))}, and a webhook or a list shows {_shown(expected)}"
        if self._outdated < _MOST_OUTDATED and (retry := self._retry(delivery, RetryReason.OUTDATED, error)):
            return retry
        self._outdated += 1
        self._on_outdated()
        _log.warning("outdated_document", order_id=delivery.order_id, entry_id=delivery.entry.id, problem=error)
        return None

    def _retry(self, delivery: Delivery, reason: RetryReason, error: str) -> Retry | None:
        # Both times are of the same clock, and each retry is a new entry.
        elapsed = max(0.0, delivery.added_at() - delivery.enqueued_at)
        if elapsed >= _WITHIN:
            return None
        pause = max(_FIRST_PAUSE, elapsed)
        return Retry(self._draw(pause / 2, pause), delivery.attempt, reason, error)


def _in_the_unit_of(version: datetime, expected: datetime) -> datetime:
    """The expected time without the digits that documents lack. Many contain whole seconds or milliseconds only."""
    if not version.microsecond:
        return expected.replace(microsecond=0)
    unit = 1 if version.microsecond % 1000 else 1000
    return expected.replace(microsecond=expected.microsecond // unit * unit)


def _shown(moment: datetime) -> str:
    return f"{moment:%FT%T.%fZ}"
