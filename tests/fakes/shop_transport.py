"""A simulated shop without a server, which implements `Transport`: its handlers are called with requests that no socket has carried."""

from collections.abc import Awaitable, Callable, Mapping
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.upstream.http.transport import Method, NoDocument, OnHead, has_document


class ShopTransport:
    """Requests to the shop.

    Attributes:
        requests: number of requests so far.
        before: called before each request, such as to change orders or to let time pass.
    """

    def __init__(self, shop: SimulatedShop) -> None:
        self._shop = shop
        self._router = web.UrlDispatcher()
        self._router.add_routes(shop.routes())
        shop.site.base_url = shop.base_url = "http://shop.test"
        self.requests = 0
        self.before: Callable[[], Awaitable[None]] = _nothing

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_head: OnHead | None = None,
    ) -> bytes:
        """See `Transport`."""
        self.requests += 1
        await self.before()
        response = await self._response(URL(url, encoded=True), CIMultiDict(headers), method, body or b"")
        content = bytes(response.body or b"")  # type: ignore[arg-type]  # handlers respond with bytes
        response.headers.setdefault("Date", format_datetime(self._shop.state.clock(), usegmt=True))
        if not has_document(response.status):
            raise NoDocument(response.status, response.headers, content)
        if on_head is not None:
            on_head(response.status, response.headers)
        return content

    async def replace(self, send: object, bug: Exception) -> None:
        """See `ReplaceableTransport`. A bug of the test is not hidden as one of the transport."""
        raise AssertionError(send) from bug

    async def _response(self, url: URL, headers: CIMultiDict[str], method: str, body: bytes) -> web.Response:
        async def read() -> bytes:
            return body

        async def text() -> str:
            return body.decode()

        content_type = headers.get("Content-Type", "application/octet-stream").partition(";")[0]
        request: Any = SimpleNamespace(
            method=method, rel_url=url.relative(), path=url.path, query=url.query, headers=headers, read=read, text=text
        )
        request.content_type = content_type
        request.match_info = found = await self._router.resolve(request)
        return cast("web.Response", await self._shop.respond(request, found.handler))


async def _nothing() -> None:
    pass
