"""aiohttp's protocol of a connection, with our response to data that is not an HTTP request."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from ingest.api.http.problems import Problem, raw_response
from ingest.telemetry.logs import get_logger

_log = get_logger("api")


class RequestProtocol(web.RequestHandler):
    """aiohttp's protocol, with a problem as the response to data that is not an HTTP request.

    aiohttp itself would repeat the header, which may contain a secret, in its response and in the log.

    Attributes:
        connection: the `Connection` around it.
    """

    __slots__ = ("_unreadable", "connection")

    connection: Any

    def __init__(self, server: web.Server, unreadable: Callable[[], None], **options: Any) -> None:
        super().__init__(server, **options)
        self._unreadable = unreadable

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Respond, and close the connection by raising a `ConnectionError`."""
        del message
        if isinstance(exc, ConnectionError):
            raise exc
        if status >= 500:
            _log.error("request_failed", exc_info=exc)
            problem = Problem(500, "internal_error", "an unexpected error; it has been logged")
        else:
            problem = Problem(400, "bad_request", "this is not an HTTP request that can be read")
            self._unreadable()
        if self.transport is not None and request.writer.output_size == 0:
            self.transport.write(raw_response(problem))
        raise ConnectionAbortedError
