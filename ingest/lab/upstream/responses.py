"""Builds responses as the bytes of head and body in one piece, ready to be written."""

import math
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.faults import Fault


class Ending(Enum):
    """The treatment of the connection after a response."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"


class Response(NamedTuple):
    """The payload of a response, and what happens to the connection afterwards. A reset has no payload.

    `label` is the key in the statistics, or None for a response that is not counted.
    """

    payload: bytes
    label: str | None
    ending: Ending = Ending.KEEP


RESET = Response(b"", "reset", Ending.RESET)

JSON = "application/json"
PROBLEM = "application/problem+json"


def response(status: int, body: bytes = b"", content_type: str = JSON, **headers: str) -> Response:
    """Build a response. Underscores in a header's name stand for hyphens."""
    lines = [f"HTTP/1.1 {status} {_phrase(status)}"]
    if body:
        lines.append(f"Content-Type: {content_type}")
    if status != HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return Response("\r\n".join([*lines, "", ""]).encode("latin-1") + body, str(status))


def problem(status: int, detail: str, **headers: str) -> Response:
    """Build an error as defined by RFC 9457."""
    body = msgspec.json.encode({"title": _phrase(status), "status": status, "detail": detail})
    return response(status, body, PROBLEM, **headers)


def not_found(order_id: str) -> Response:
    """Build the response for an order that does not exist."""
    return problem(HTTPStatus.NOT_FOUND, f"order {order_id!r} does not exist")


def uncounted(given: Response) -> Response:
    """Exclude the response from the statistics."""
    return given._replace(label=None)


def without_body(given: Response) -> Response:
    """Return the response to HEAD, which consists of the same head without the body."""
    head, blank, _ = given.payload.partition(b"\r\n\r\n")
    return given._replace(payload=head + blank)


def with_connection(given: Response, option: bytes) -> Response:
    """Return the response with a Connection header, which is `close`, or `keep-alive` for HTTP/1.0."""
    payload = given.payload.replace(b"\r\n", b"\r\nConnection: " + option + b"\r\n", 1)
    ending = Ending.CLOSE if option == b"close" and given.ending is Ending.KEEP else given.ending
    return given._replace(payload=payload, ending=ending)


class FaultyResponses:
    """The response to each fault under one behaviour. `right` is the response without the fault."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._fixed = {
            Fault.ERROR: problem(behaviour.error_status, "a configured fault"),
            Fault.WRONG_TYPE: response(HTTPStatus.OK, b'["this","is","no","order"]'),
            Fault.RESET: RESET,
            Fault.DOWN: problem(HTTPStatus.SERVICE_UNAVAILABLE, "a configured outage"),
            Fault.DOWN_RESET: RESET,
            Fault.DOWN_PAGE: response(
                HTTPStatus.OK, b"<!doctype html><title>Log in</title>", "text/html; charset=utf-8"
            ),
            Fault.DOWN_EMPTY: response(HTTPStatus.OK, b"{}"),
            Fault.DOWN_404: problem(HTTPStatus.NOT_FOUND, "a configured outage"),
            Fault.OVERLOADED: problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait"),
            Fault.UNAUTHORIZED: problem(
                HTTPStatus.UNAUTHORIZED, "the credential is missing or wrong", WWW_Authenticate="Bearer"
            ),
        }
        if behaviour.oversize_rate:
            self._fixed[Fault.OVERSIZE] = _oversized(behaviour.oversize_bytes)

    def to(self, fault: Fault, order_id: str, right: Response, now: float) -> Response | None:
        """Return the response, or None for a request that never gets one. `now` is Unix time."""
        match fault:
            case Fault.UNAVAILABLE:
                return self._retry_later(HTTPStatus.SERVICE_UNAVAILABLE, now)
            case Fault.THROTTLED:
                return self._retry_later(HTTPStatus.TOO_MANY_REQUESTS, now)
            case Fault.NOT_FOUND:
                return not_found(order_id)
            case Fault.REDIRECT:
                return response(HTTPStatus.FOUND, Location=_location(order_id))
            case Fault.MALFORMED:
                return response(HTTPStatus.OK, b"{" + _body(right))
            case Fault.TRUNCATE:
                return _truncated(right)
            case Fault.HANG:
                return None
            case _:
                return self._fixed[fault]

    def _retry_later(self, status: int, now: float) -> Response:
        wait = self._behaviour.retry_after
        detail = "retry later"
        match self._behaviour.retry_after_format:
            case "seconds":
                return problem(status, detail, Retry_After=str(wait))
            case "date":
                # Rounded up, because a date has whole seconds and must not allow a retry too early.
                until = formatdate(math.ceil(now) + wait, usegmt=True)
                return problem(status, detail, Retry_After=until, Date=formatdate(now, usegmt=True))
            case "none":
                return problem(status, detail)


def _location(order_id: str) -> str:
    """The location of the same order, or of the same list if `order_id` is a query that begins with a question mark."""
    return order_id if order_id.startswith("?") else f"/orders/{quote(order_id, safe='')}"


def _oversized(length: int) -> Response:
    start, end = b'{"padding":"', b'"}'
    return response(HTTPStatus.OK, start + b"x" * (length - len(start) - len(end)) + end)


def _body(right: Response) -> bytes:
    return right.payload.partition(b"\r\n\r\n")[2]


def _truncated(right: Response) -> Response:
    keep = len(right.payload) - len(_body(right)) // 2
    return right._replace(payload=right.payload[:keep], ending=Ending.CLOSE)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unassigned"
