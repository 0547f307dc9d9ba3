"""Reads responses of the API, or of another program at its address, such as a proxy."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

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
    UnexpectedResponse,
)
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.orders.order import Order
from ingest.upstream.responses import api_time, retry_after

_T = TypeVar("_T")
_LONGEST_TEXT = 300
_BY_CODE: dict[str, type[ApiError]] = {
    "backlog_full": ApiBacklogFull,
    "queue_full": ApiBacklogFull,
    "idempotency_key_reused": ApiKeyReused,
    "request_in_progress": RequestInProgress,
    "no_such_path": UnexpectedResponse,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: UnexpectedResponse,
    408: ApiUnavailable,
    429: RateLimited,
    501: UnexpectedResponse,
}
# Only the API itself can decide this.
_OWN = (NotFound, Invalid)
_MEMBERS = frozenset({"type", "title", "status", "code", "detail"})
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response, read completely.

    Attributes:
        headers: The case-insensitive headers. Like the body, they are not shown in tracebacks.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def content_type(self) -> str:
        """The media type."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def checked(response: ApiResponse) -> ApiResponse:
    """Return the response of a successful call.

    Raises:
        ApiError: The error in the response.
    """
    if response.status in {200, 202, 204}:
        return response
    raise _error(response)


def json_object(response: ApiResponse) -> dict[str, Any]:
    """The body.

    Raises:
        UnexpectedResponse: It is not a JSON object.
    """
    if (found := _decoded(response, "application/json", dict[str, Any])) is None:
        raise _unexpected(response, "the response is not a JSON object")
    return found


class _Accepted(msgspec.Struct, frozen=True):
    accepted: int
    duplicates: int = 0


def accepted(response: ApiResponse) -> Accepted:
    """Return the number of accepted orders.

    Raises:
        UnexpectedResponse: The response does not contain that.
    """
    told = _decoded(response, "application/json", _Accepted)
    if response.status != 202 or told is None:
        raise _unexpected(response, "the response does not confirm the orders")
    return Accepted(told.accepted, told.duplicates)


@dataclass(frozen=True, slots=True)
class FoundOrder:
    """An order, wherever it is.

    Attributes:
        order_id: The ID of the order.
        state: `queued`, `in_flight`, `retrying`, `dead`, `stored` or `erased`. `unknown` if the queue is too long to be searched.
        order: The stored order, or None if it is not stored.
        erased_at: When it was erased, or None if it was not.
        response: The whole response, such as `ingestion`, with the reason of a retry.
    """

    order_id: str
    state: str
    order: Order | None
    erased_at: datetime | None
    response: dict[str, Any] = field(repr=False)


class _Ingestion(msgspec.Struct, frozen=True):
    state: str


class _Found(msgspec.Struct, frozen=True):
    order_id: str
    ingestion: _Ingestion
    order: Order | None = None
    erased_at: datetime | None = None


def found_order(response: dict[str, Any]) -> FoundOrder:
    """The order in a response.

    Raises:
        UnexpectedResponse: If it contains none.
    """
    try:
        found = msgspec.convert(response, _Found)
    except msgspec.ValidationError as error:
        raise UnexpectedResponse(f"the response contains no order: {error}") from None
    return FoundOrder(found.order_id, found.ingestion.state, found.order, found.erased_at, response)


def _unexpected(response: ApiResponse, what: str) -> UnexpectedResponse:
    return UnexpectedResponse(f"{what} (HTTP {response.status}): is this the URL of the API?", status=response.status)


def _error(response: ApiResponse) -> ApiError:
    told = _decoded(response, "application/problem+json", dict[str, Any]) or {}
    code = _text(told.get("code"))
    kind = _BY_CODE.get(code) or _kind(response.status)
    if 300 <= response.status < 400:
        return _unexpected(response, "the response is a redirect, which is not followed")
    if not told and issubclass(kind, _OWN):
        return _unexpected(response, "the response is not the API's")
    text = _text(told.get("detail")) or kind.__doc__ or ""
    return kind(
        f"{text.partition(chr(10))[0]} (HTTP {response.status}{f', {code}' if code else ''})",
        status=response.status,
        code=code,
        members={name: value for name, value in told.items() if name not in _MEMBERS},
        request_id=_text(response.headers.get("X-Request-Id")),
        told=retry_after(response.headers.get("Retry-After"), api_time(response.headers, datetime.now(UTC))),
    )


def _kind(status: int) -> type[ApiError]:
    if (kind := _BY_STATUS.get(status)) is not None:
        return kind
    if 400 <= status < 500:
        return Invalid
    return ApiUnavailable if 500 <= status < 600 else UnexpectedResponse


def _decoded(response: ApiResponse, content_type: str, kind: type[_T]) -> _T | None:
    """The body, if it is JSON of this type."""
    if response.content_type != content_type:
        return None
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _text(value: object) -> str:
    """Return a text of the response for a message, printable and shortened."""
    return _UNPRINTABLE.sub("?", value)[:_LONGEST_TEXT] if isinstance(value, str) else ""
