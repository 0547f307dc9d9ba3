"""What can be wrong: with the file of sources, or with a request."""

from ingest.domain.toml_errors import Keys
from ingest.domain.webhook_result import WebhookResult


class SourceError(ValueError):
    """A source that cannot be used.

    Attributes:
        keys: where in the file, from its top.
        what: the error, never a secret.
    """

    def __init__(self, what: str, keys: Keys = ()) -> None:
        super().__init__(what)
        self.what = what
        self.keys = keys

    def below(self, *keys: str | int) -> "SourceError":
        """The same error, seen from further up in the file."""
        return SourceError(self.what, (*keys, *self.keys))


class Refused(Exception):
    """A webhook that is not accepted.

    Attributes:
        result: why, for metrics.
        code: why, for programs.
        detail: the reason for people, without any part of the body.
    """

    def __init__(self, result: WebhookResult, code: str, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.code = code
        self.detail = detail
