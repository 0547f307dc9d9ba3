"""Error responses as problem details for HTTP APIs (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from ingest.operations.declared import STATUS_OF

CONTENT_TYPE = "application/problem+json"
# In every response, because no response is a page or may be cached.
SECURITY_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Problem(Exception):
    """A response that is an error, raised by handlers.

    Args:
        status: The HTTP status.
        code: Names the kind of problem for programs, such as `backlog_full`. It is part of the API.
        detail: Describes the error of this request in words, without a secret, a body or an internal name.
        headers: The headers of the response, such as Retry-After.
        members: Further members of the problem, such as where in the body the error is.

    Attributes:
        key: The name of the API key that was not admitted, only for the log.
    """

    key = ""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members

    def body(self) -> bytes:
        """The problem as JSON."""
        return msgspec.json.encode(
            {
                "type": "about:blank",
                "title": HTTPStatus(self.status).phrase,
                "status": self.status,
                "code": self.code,
                "detail": self.detail,
                **self.members,
            }
        )

    def response(self) -> web.Response:
        """The answer."""
        return web.Response(body=self.body(), status=self.status, headers=self.headers, content_type=CONTENT_TYPE)


def failure(code: str, detail: str, **members: Any) -> Problem:
    """An error of an operation, with the status of its code."""
    return Problem(STATUS_OF[code], code, detail, **members)


def too_busy(detail: str) -> Problem:
    """A request that may be repeated soon, because something is used up."""
    return Problem(503, "busy", detail, headers={"Retry-After": "1"})


def raw_response(problem: Problem) -> bytes:
    """The response before there is a request, after which the connection is closed."""
    body = problem.body()
    headers = {
        **SECURITY_HEADERS,
        **problem.headers,
        "Content-Type": CONTENT_TYPE,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
