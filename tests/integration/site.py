"""An external API of the test's own, by its routes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

from ingest.lab.servers.server import free_port


@asynccontextmanager
async def serving_routes(routes: Mapping[str, Handler]) -> AsyncIterator[str]:
    """The URL of a server with these routes of GET."""
    application = web.Application()
    application.router.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)  # cancels handlers that still hang
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", free_port())
    await site.start()
    try:
        yield site.name
    finally:
        await runner.cleanup()
