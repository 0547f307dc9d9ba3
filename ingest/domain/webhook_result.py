"""The results of webhooks."""

from enum import StrEnum


class WebhookResult(StrEnum):
    """The result of a webhook, a label value of `ingest_webhooks_total`."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    BAD_SIGNATURE = "bad_signature"
    EXPIRED = "expired"
    MALFORMED = "malformed"
    UNAVAILABLE = "unavailable"
