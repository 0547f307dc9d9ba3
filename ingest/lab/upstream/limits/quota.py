"""The request quota of the simulated API and its response headers."""

import math
from http import HTTPStatus

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.responses import Response, problem


class QuotaWindow:
    """Counts requests in consecutive windows from the first request on.

    Args:
        behaviour: a behaviour with a `quota`.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self._requests = behaviour.quota
        self._seconds = behaviour.quota_window
        self._style = behaviour.quota_headers
        self._ends_at = -math.inf
        self._left = 0

    def take(self, now: float) -> Response | None:
        """Count a request, and return a 429 if the quota is used up. `now` is in seconds and monotonic."""
        if now >= self._ends_at:
            self._ends_at, self._left = now + self._seconds, self._requests
        if self._left:
            self._left -= 1
            return None
        wait = math.ceil(self._ends_at - now)
        return problem(HTTPStatus.TOO_MANY_REQUESTS, "the quota is used up", Retry_After=str(wait))

    def stamped(self, response: Response, now: float) -> Response:
        """Return the response with headers for the remaining quota."""
        if not response.payload or self._style == "none":
            return response
        lines = "".join(f"{line}\r\n" for line in self._lines(math.ceil(self._ends_at - now)))
        return response._replace(payload=response.payload.replace(b"\r\n", b"\r\n" + lines.encode(), 1))

    def _lines(self, reset: int) -> list[str]:
        limit, left, window = self._requests, self._left, math.ceil(self._seconds)
        match self._style:
            case "items":
                return [f'RateLimit-Policy: "default";q={limit};w={window}', f'RateLimit: "default";r={left};t={reset}']
            case "members":
                return [
                    f"RateLimit-Policy: {limit};w={window}",
                    f"RateLimit: limit={limit}, remaining={left}, reset={reset}",
                ]
            case "fields" | _:
                prefix = "RateLimit" if self._style == "fields" else "X-RateLimit"
                return [f"{prefix}-Limit: {limit}", f"{prefix}-Remaining: {left}", f"{prefix}-Reset: {reset}"]
