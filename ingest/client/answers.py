"""Reads answers of the API, which may come from something else: a proxy, a portal, another program at this address."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from ingest.client.errors import (
    ApiBacklogFull,
    ApiError,
    ApiKeyReused,
    ApiUnavailable,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    RequestInProgress,
    Unauthorized,
    UnexpectedAnswer,
)
from ingest.domain.deliveries.accepted import Accepted
from ingest.upstream.responses import api_time, retry_after

_LONGEST_TEXT = 300
_BY_CODE: dict[str, type[ApiError]] = {
    "backlog_full": ApiBacklogFull,
    "queue_full": ApiBacklogFull,
    "idempotency_key_reused": ApiKeyReused,
    "request_in_progress": RequestInProgress,
    "no_such_path": UnexpectedAnswer,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: UnexpectedAnswer,
    408: ApiUnavailable,
    429: RateLimited,
    501: UnexpectedAnswer,
}
# Only the API itself can decide this.
_OWN = (NotFound, Invalid)
_MEMBERS = frozenset({"type", "title", "status", "code", "detail"})
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """An answer, read whole.

    Attributes:
        headers: case-insensitive. Not shown in tracebacks, like the body.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def content_type(self) -> str:
        """The media type."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def checked(answer: ApiResponse) -> ApiResponse:
    """The answer, if the call has succeeded.

    Raises:
        ApiError: the error in the response.
    """
    if answer.status in {200, 202, 204}:
        return answer
    raise _error(answer)


def json_object(answer: ApiResponse) -> dict[str, Any]:
    """The body.

    Raises:
        UnexpectedAnswer: it is not a JSON object.
    """
    if answer.content_type != "application/json":
        raise _unexpected(answer, "the answer is not JSON")
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _unexpected(answer, "the answer is not a JSON object") from None


class _Accepted(msgspec.Struct, frozen=True):
    accepted: int
    duplicates: int = 0


def accepted(answer: ApiResponse) -> Accepted:
    """How many orders were accepted.

    Raises:
        UnexpectedAnswer: the response does not contain that.
    """
    try:
        if answer.status == 202 and answer.content_type == "application/json":
            told = msgspec.json.decode(answer.body, type=_Accepted)
            return Accepted(told.accepted, told.duplicates)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    raise _unexpected(answer, "the answer does not confirm the orders")


def _unexpected(answer: ApiResponse, what: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(f"{what} (HTTP {answer.status}): is this the URL of the API?", status=answer.status)


def _error(answer: ApiResponse) -> ApiError:
    told = _problem(answer)
    code = _text(told.get("code"))
    kind = _BY_CODE.get(code) or _kind(answer.status)
    if 300 <= answer.status < 400:
        return _unexpected(answer, "the answer is a redirect, which is not followed")
    if not told and issubclass(kind, _OWN):
        return _unexpected(answer, "the answer is not the API's")
    text = _text(told.get("detail")) or kind.__doc__ or ""
    return kind(
        f"{text.partition(chr(10))[0]} (HTTP {answer.status}{f', {code}' if code else ''})",
        status=answer.status,
        code=code,
        members={name: value for name, value in told.items() if name not in _MEMBERS},
        request_id=_text(answer.headers.get("X-Request-Id")),
        told=retry_after(answer.headers.get("Retry-After"), api_time(answer.headers, datetime.now(UTC))),
    )


def _kind(status: int) -> type[ApiError]:
    if (kind := _BY_STATUS.get(status)) is not None:
        return kind
    if 400 <= status < 500:
        return Invalid
    return ApiUnavailable if 500 <= status < 600 else UnexpectedAnswer


def _problem(answer: ApiResponse) -> dict[str, Any]:
    if answer.content_type != "application/problem+json":
        return {}
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _text(value: object) -> str:
    """A text of the answer as part of a message: printable, and not long."""
    return _UNPRINTABLE.sub("?", value)[:_LONGEST_TEXT] if isinstance(value, str) else ""
