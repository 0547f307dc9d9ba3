"""The errors of the client, named for the action of the caller. No message contains the API key."""

from collections.abc import Mapping
from typing import Any

from ingest.queue.produce.producer_errors import BacklogFull, IdempotencyKeyReused


class ApiError(Exception):
    """A call has failed.

    Attributes:
        status: The status of the HTTP response, or 0 if there was none.
        code: Names the problem for programs, such as `backlog_full`. Empty without a code in the response.
        members: Further members of the problem, such as `index`, the place of the error in the request.
        request_id: The ID under which the API has logged the request, or an empty text.
        retry_after: Seconds after which to try again, where that can help.
        accepted: The number of orders at the beginning of the call that were accepted before it failed.
    """

    may_pass = False

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        members: Mapping[str, Any] | None = None,
        request_id: str = "",
        told: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.members = dict(members or {})
        self.request_id = request_id
        self.told = told
        self.retry_after = 1.0 if told is None else told
        self.accepted = 0


class ApiUnavailable(ApiError):
    """The API cannot be reached, does not respond in time, or cannot work now. Try again after `retry_after`.

    The orders of the call may or may not have been accepted. If you repeat it with the same idempotency key, they are
    accepted once.
    """

    may_pass = True


class RateLimited(ApiError):
    """The API key has reached its rate limit. Try again after `retry_after`."""

    may_pass = True


class ApiBacklogFull(ApiError, BacklogFull):
    """The backlog is at its limit, and nothing was accepted. Try again after `retry_after`."""

    may_pass = True


class RequestInProgress(ApiError):
    """A request with this idempotency key still runs. Try again after `retry_after`."""

    may_pass = True


class ApiKeyReused(ApiError, IdempotencyKeyReused):
    """The idempotency key belongs to another request, and nothing was accepted. Use another key."""


class Unauthorized(ApiError):
    """The API key is missing, wrong, revoked or expired."""


class Forbidden(ApiError):
    """The API key lacks a scope, which `members["scope"]` names."""


class NotFound(ApiError):
    """There is no such order."""


class Invalid(ApiError):
    """The request is not valid. Correct it, because it would be rejected again."""


class UnexpectedResponse(ApiError):
    """The server is not this API, or not of a compatible release. Check the URL."""
