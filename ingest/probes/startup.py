"""Answers /healthz and /readyz while a command waits for its servers: it is alive, and not ready.

Otherwise a supervisor such as Kubernetes would restart it during an outage, later and later each time, and it would go on long after the
servers. A command that starts without waiting imports nothing of this.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

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
    from ingest.probes.plain_http import Answer, Request, serving_routes  # noqa: PLC0415  only a start that takes long needs it

    async def live(_: Request) -> Answer:
        return Answer.text("ok: waits for its servers")

    async def not_ready(_: Request) -> Answer:
        return Answer.text("waits for its servers", HTTPStatus.SERVICE_UNAVAILABLE)

    # Its own descriptor, as it is closed at the end.
    async with serving_routes(listener.dup(), {"/healthz": live, "/readyz": not_ready}):
        await asyncio.Event().wait()
