"""What may become of a webhook."""

from enum import StrEnum


class WebhookResult(StrEnum):
    """What became of a webhook; label values of `ingest_webhooks_total`."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    BAD_SIGNATURE = "bad_signature"
    EXPIRED = "expired"
    MALFORMED = "malformed"
    UNAVAILABLE = "unavailable"
