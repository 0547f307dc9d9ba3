"""A minimal handler that only responds, to measure the cost of aiohttp without the service.

`python -m ingest.bench.http.bare PORT` serves it on uvloop. Several processes can share the port. gunicorn runs
`application`.
"""

import asyncio
import sys

import uvloop
from aiohttp import web

_ANSWER = b'{"accepted":1,"duplicates":0}'
_BACKLOG = 4096


async def answer(request: web.Request) -> web.Response:
    """Respond that an order is accepted."""
    del request
    return web.Response(body=_ANSWER, status=202, content_type="application/json")


async def application() -> web.Application:
    """The application."""
    made = web.Application()
    made.router.add_post("/v1/orders", answer)
    return made


async def serve(port: int) -> None:
    """Serve until cancelled."""
    runner = web.AppRunner(await application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_port=True, backlog=_BACKLOG).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
