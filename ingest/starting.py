"""Answers /healthz and /readyz while a command waits for its servers: it is alive, and not ready.

Otherwise a supervisor such as Kubernetes would restart it during an outage, later and later each time, and it would go on long after the
servers. A command that starts without waiting imports nothing of this.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# A usual start is over before.
_AFTER = 1.0


@asynccontextmanager
async def answering_while_waiting(listener: socket.socket | None) -> AsyncIterator[None]:
    """Answer on `listener`, which stays open, once the block has taken a while, until it ends."""
    if listener is None:
        yield
        return
    answering = asyncio.create_task(_answer(listener))
    try:
        yield
    finally:
        answering.cancel()
        await asyncio.wait([answering])


async def _answer(listener: socket.socket) -> None:
    await asyncio.sleep(_AFTER)
    from aiohttp import web  # noqa: PLC0415  only a start that takes long needs it

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok: waits for its servers\n")

    async def not_ready(_: web.Request) -> web.Response:
        return web.Response(status=503, text="waits for its servers\n")

    application = web.Application()
    application.router.add_get("/healthz", live)
    application.router.add_get("/readyz", not_ready)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        # Its own descriptor, as it is closed at the end.
        await web.SockSite(runner, listener.dup()).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
