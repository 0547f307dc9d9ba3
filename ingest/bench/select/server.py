"""One process of the HTTP server, which serves `GET /orders/{order_id}` with aiohttp on uvloop and any way of reading.

`python -m ingest.bench.select.server` reads a line of JSON (`Serve`), writes its port, and runs until it is killed.
"""

import asyncio

import msgspec
import uvloop
from aiohttp import web

from ingest.bench.select.pausing import Pause
from ingest.bench.select.readers import encode, open_reader
from ingest.lab.programs import receive, write_line

_BACKLOG = 4096


class Serve(msgspec.Struct, frozen=True):
    """The parameters of the server.

    Attributes:
        kind: way of reading.
        dsn: DSN of PostgreSQL.
        pool: number of connections.
        port: port shared with other processes, or 0 for any.
        pause: way of making a slow call.
        pause_every: number of requests of which one makes a slow call.
        pause_seconds: duration of the call.
    """

    kind: str
    dsn: str
    pool: int
    port: int
    pause: str
    pause_every: int
    pause_seconds: float


async def serve(wanted: Serve) -> None:
    """Listen, write the port, and serve until cancelled."""
    pause = Pause(wanted.pause, wanted.pause_every, wanted.pause_seconds)
    async with open_reader(wanted.kind, wanted.dsn, wanted.pool) as read:

        async def get(request: web.Request) -> web.Response:
            await pause()
            row = await read(request.match_info["order_id"])
            if row is None:
                return web.Response(status=404)
            return web.Response(body=encode(row), content_type="application/json")

        application = web.Application()
        application.router.add_get("/orders/{order_id}", get)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", wanted.port, reuse_port=True, backlog=_BACKLOG).start()
        write_line(str(runner.addresses[0][1]))
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(receive(Serve)))
