"""Sends the live parts of pages as server-sent events while they are open.

A live part is an element whose attribute `data-live` contains the URL of its stream. Each event contains the element's content, and the
script replaces the changed parts. A stream ends after some minutes, and the browser opens it again, which renews the session.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from ingest.api.console.frame import HEADERS, Frame, Page, Visit
from ingest.api.console.visitors import LoginNeeded
from ingest.api.http.failures import as_problems
from ingest.api.http.problems import Problem
from ingest.api.http.requests import STATE
from ingest.domain.api_key import Scope
from ingest.operations.declared import DECLARED

RenderPart = Callable[[Visit], Awaitable[str]]
"""Returns the current content of the live part of a page, as HTML. The request has the query of the page."""
MakeModel = Callable[[Visit], Awaitable[dict[str, Any]]]
"""Returns the names that a template uses."""

_EVERY = 1.0
_LONGEST = 300.0
# A comment keeps connections through proxies, and reveals that the client has disconnected.
_SILENT = 15.0
_COMMENT = b":\n\n"


class LiveData:
    """The streams of all pages.

    Args:
        frame: Renders pages.
        is_stopping: Whether streams are to end.
    """

    def __init__(self, frame: Frame, is_stopping: Callable[[], bool]) -> None:
        self._frame = frame
        self._is_stopping = is_stopping
        self._pages: list[Page] = []

    def add(self, name: str, render: RenderPart, operation: str) -> None:
        """Add the live part of a page. Its stream is `/console/events/NAME`, with the query of the page."""

        async def respond(visit: Visit) -> web.StreamResponse:
            return await self._stream(visit, render, DECLARED[operation].scope)

        self._pages.append(Page("GET", f"/events/{name}", respond, operation))

    def page(
        self,
        name: str,
        path: str,
        template: str,
        model: MakeModel,
        operation: str,
        *,
        is_large: bool = False,
    ) -> Page:
        """Return a page by the template `TEMPLATE.html`, and add its live part by `TEMPLATE_part.html`, with the same model."""

        async def show(visit: Visit) -> web.StreamResponse:
            return self._frame.render(visit, f"{template}.html", **await model(visit))

        async def part(visit: Visit) -> str:
            return self._frame.fragment(visit, f"{template}_part.html", **await model(visit))

        self.add(name, part, operation)
        return Page("GET", path, show, operation, is_large=is_large)

    def pages(self) -> Sequence[Page]:
        """The streams."""
        return self._pages

    async def _stream(self, visit: Visit, render: RenderPart, scope: Scope) -> web.StreamResponse:
        connection = visit.request[STATE].connection
        with connection.connections.lasting(connection, is_live=True):
            event = _event(await render(visit))
            response = web.StreamResponse(
                headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
            )
            self._frame.keep_session(visit, response)
            writer = await response.prepare(visit.request)
            if writer is not None and visit.request.method != "HEAD":
                await self._send_changes(visit, render, scope, writer, event)
        return response

    async def _send_changes(
        self, visit: Visit, render: RenderPart, scope: Scope, writer: AbstractStreamWriter, event: bytes
    ) -> None:
        """Send the event, and later each changed one, until the stream ends."""
        state = visit.request[STATE]
        ends_at = time.monotonic() + _LONGEST
        sent, sent_at = 0, 0.0
        while True:
            is_new = hash(event) != sent
            if is_new or time.monotonic() - sent_at > _SILENT:
                state.hold(len(event))
                await state.connection.send(writer, event if is_new else _COMMENT)
                sent, sent_at = hash(event), time.monotonic()
            # An open page holds no content between its events.
            event = b""
            state.hold(0)
            await asyncio.sleep(_EVERY)
            if self._is_stopping() or visit.request.transport is None or time.monotonic() > ends_at:
                return
            try:
                await self._frame.visitors.check(visit.visitor, scope)
                with as_problems():
                    event = _event(await render(visit))
            except (LoginNeeded, Problem):
                # The session has ended, the key was revoked, or a server is unavailable. The page shows it after the next attempt to connect.
                return


def _event(content: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in content.splitlines())
    return f"retry: 2000\n{lines}\n".encode()
