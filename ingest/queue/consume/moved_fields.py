"""The fields of an entry when it moves to the retry set or to the dead letters."""

from collections.abc import Mapping

from ingest.domain.deliveries.delivery import DeadReason, Delivery, RetryReason
from ingest.domain.deliveries.entry_fields import (
    ATTEMPT,
    ATTEMPTS,
    ENQUEUED_AT,
    ERROR,
    FIRST_ENQUEUED_AT,
    GROUP,
    OF_RETRIES,
    REASON,
    RETRY_ERROR,
    RETRY_REASON,
    WORKER,
)

# The error is for operators, and travels with the entry.
_LONGEST_ERROR = 500


def retry_fields(
    delivery: Delivery, attempt: int, reason: RetryReason | None = None, error: str = ""
) -> Mapping[bytes, bytes]:
    """The fields of an entry that waits for its next attempt.

    They include the time at which the order was enqueued, because the ID of the next entry would give a later one.
    """
    fields = {**_without_group(delivery), ENQUEUED_AT: _milliseconds(delivery), ATTEMPT: b"%d" % attempt}
    if reason is not None:
        fields |= {RETRY_REASON: reason.encode(), RETRY_ERROR: error[:_LONGEST_ERROR].encode(errors="replace")}
    return fields


def dead_letter_fields(delivery: Delivery, reason: DeadReason, error: str, worker: str) -> Mapping[bytes, bytes]:
    """The fields of a dead letter."""
    own = {name: value for name, value in _without_group(delivery).items() if name not in OF_RETRIES}
    return own | {
        REASON: reason.encode(),
        ERROR: error.encode(errors="replace"),
        ATTEMPTS: b"%d" % delivery.attempt,
        FIRST_ENQUEUED_AT: _milliseconds(delivery),
        WORKER: worker.encode(),
    }


def _milliseconds(delivery: Delivery) -> bytes:
    return b"%d" % (delivery.enqueued_at * 1000)


def _without_group(delivery: Delivery) -> Mapping[bytes, bytes]:
    # The group is written again when the entry returns to a stream.
    return {name: value for name, value in delivery.fields.items() if name != GROUP}
