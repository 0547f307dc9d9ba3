"""Sends the live parts of pages as server-sent events while they are open.

A live part is an element whose attribute `data-live` contains the URL of its stream. Each event contains the element's content, and the
script replaces the changed parts. A stream ends after some minutes, and the browser opens it again, which renews the session.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from ingest.api.console.frame import HEADERS, Frame, Page, Visit
from ingest.api.console.visitors import LoginNeeded
from ingest.api.http.problems import Problem
from ingest.domain.api_key import Scope

RenderPart = Callable[[Visit], Awaitable[str]]
"""Returns the current content of the live part of a page, as HTML. The request has the query of the page."""

_EVERY = 1.0
_LONGEST = 300.0
# A comment keeps connections through proxies, and reveals that the client has disconnected.
_SILENT = 15.0


class LiveData:
    """The streams of all pages.

    Args:
        frame: Renders problems.
        is_stopping: Whether streams are to end.
    """

    def __init__(self, frame: Frame, is_stopping: Callable[[], bool]) -> None:
        self._frame = frame
        self._is_stopping = is_stopping
        self._pages: list[Page] = []

    def add(self, name: str, render: RenderPart, scope: Scope = Scope.READ) -> None:
        """Add the live part of a page. Its stream is `/console/events/NAME`, with the query of the page."""

        async def respond(visit: Visit) -> web.StreamResponse:
            return await self._stream(visit, render, scope)

        self._pages.append(Page("GET", f"/events/{name}", respond, scope))

    def pages(self) -> Sequence[Page]:
        """The streams."""
        return self._pages

    async def _stream(self, visit: Visit, render: RenderPart, scope: Scope) -> web.StreamResponse:
        request = visit.request
        content = await render(visit)
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        self._frame.keep_session(visit, response)
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        ends_at = time.monotonic() + _LONGEST
        await response.write(_event(content))
        sent, sent_at = content, time.monotonic()
        while not self._is_stopping() and request.transport is not None and time.monotonic() < ends_at:
            await asyncio.sleep(_EVERY)
            try:
                await self._frame.visitors.check(visit.visitor, scope)
                content = await render(visit)
            except (LoginNeeded, Problem):
                # The session has ended, the key was revoked, or a server is unavailable. The page shows it after the next attempt to connect.
                break
            if content != sent:
                await response.write(_event(content))
                sent, sent_at = content, time.monotonic()
            elif time.monotonic() - sent_at > _SILENT:
                await response.write(b":\n\n")
                sent_at = time.monotonic()
        return response


def _event(content: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in content.splitlines())
    return f"retry: 2000\n{lines}\n".encode()
