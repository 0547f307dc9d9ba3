"""Starts and stops a simulated shop in any running event loop."""

import asyncio
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random
from types import MappingProxyType
from typing import Self

from aiohttp import web

from ingest.domain.errors import UserError
from ingest.lab.shops.kinds.amazon import Amazon
from ingest.lab.shops.kinds.bigcommerce import BigCommerce
from ingest.lab.shops.kinds.kind import Kind
from ingest.lab.shops.kinds.magento import Magento
from ingest.lab.shops.kinds.plain import Plain
from ingest.lab.shops.kinds.shopify.graphql_shop import Shopify
from ingest.lab.shops.kinds.shopify.rest_shop import ShopifyRest
from ingest.lab.shops.kinds.woocommerce import WooCommerce
from ingest.lab.shops.making import OrderMaker
from ingest.lab.shops.shop_behaviour import ShopBehaviour, changed
from ingest.lab.shops.shop_control import CONTROL_PATHS, ShopControl
from ingest.lab.shops.shop_site import ShopSite
from ingest.lab.shops.shop_state import ShopState
from ingest.lab.shops.shop_views import BrokenPage
from ingest.lab.shops.webhook_sender import WebhookSender
from ingest.lab.upstream.latency import Latency

KINDS: Mapping[str, type[Kind]] = MappingProxyType(
    {
        "shopify": Shopify,
        "shopify-rest": ShopifyRest,
        "woocommerce": WooCommerce,
        "amazon": Amazon,
        "bigcommerce": BigCommerce,
        "magento": Magento,
        "plain": Plain,
    }
)
"""The kinds of shops by the value of `--shape`."""

DEFAULT_ORDERS = 1_000
_TICK = 0.1
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SimulatedShop:
    """A whole shop with state.

    ```python
    async with SimulatedShop("woocommerce", orders=200) as shop:
        ...                              # use shop.base_url
        shop.state.change(shop.state.random_orders(1)[0])
    ```

    Args:
        name: kind of the shop.
        orders: number of initial orders.
        changes: fields of the behaviour that differ from the defaults of the kind.
        currency: of all orders.
        host: address to listen on.
        port: to listen on, or 0 for any free one.
        seed: of the random generator. The same seed makes the same orders and changes.
        tls: serves HTTPS.

    Attributes:
        kind: the API of the shop.
        site: its behaviour, tokens and limits.
        state: its orders.
        base_url: scheme, host and port, set at the start.
    """

    def __init__(
        self,
        name: str,
        *,
        orders: int = DEFAULT_ORDERS,
        changes: Mapping[str, object] = MappingProxyType({}),
        currency: str = "EUR",
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        kind = KINDS[name]
        self.seed = secrets.randbits(32) if seed is None else seed
        self._random = Random(self.seed)
        maker = OrderMaker(self.seed, currency, kind.traits)
        usual = ShopBehaviour(token=kind.token, client=kind.client, token_lifetime=kind.token_lifetime)
        behaviour = changed(usual, changes)
        self.state = ShopState(maker, orders, Random(self.seed), clock, behaviour)
        self.site = ShopSite(self.state, behaviour, Random(self.seed))
        self.kind = kind(self.site)
        self._control = ShopControl(self.site, self.kind, name)
        self._sender = WebhookSender(self.site, self.kind, self._random)
        self.state.on_event = self._sender.on_event
        self._host, self._port, self._tls = host, port, tls

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            UserError: the shop cannot listen on the address.
        """
        application = web.Application(middlewares=[self._behave])
        application.add_routes(self.routes())
        async with AsyncExitStack() as starting:
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
            await runner.setup()
            starting.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, self._host, self._port, ssl_context=self._tls)
            try:
                await site.start()
            except OSError as error:
                raise UserError(f"cannot listen on {self._host}, port {self._port}: {error.strerror}") from error
            host, port, *_ = runner.addresses[0]
            scheme = "http" if self._tls is None else "https"
            self.base_url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
            self.site.base_url = self.base_url
            self._tasks = [asyncio.create_task(self._sender.run()), asyncio.create_task(self._change())]
            starting.push_async_callback(self._stop_tasks)
            self._running = starting.pop_all()
        return self

    def routes(self) -> list[web.RouteDef]:
        """Return all routes, with those that control the shop."""
        return [*self._control.routes(), *self.kind.routes()]

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self._running.aclose()

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _change(self) -> None:
        """Change orders by themselves at the configured rate."""
        owed, before = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            behaviour = self.site.behaviour
            owed += behaviour.changes_per_second * (now - before)
            before = now
            while owed >= 1:
                owed -= 1
                self._change_one(behaviour)

    def _change_one(self, behaviour: ShopBehaviour) -> None:
        late = behaviour.late if self._random.random() < behaviour.late_share else 0.0
        if self._random.random() < 0.1 or not len(self.state):
            self.state.create(late=late)
        else:
            self.state.change(self.state.random_orders(1)[0], late=late)

    @web.middleware
    async def _behave(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.path.startswith(CONTROL_PATHS):
            return await handler(request)
        behaviour = self.site.behaviour
        self.state.counts["requests"] += 1
        if latency := Latency.parse(behaviour.latency).draw(self._random):
            await asyncio.sleep(latency)
        response = await self.respond(request, handler)
        if behaviour.lost_replies and self._random.random() < behaviour.lost_replies:
            self.state.counts["lost_replies"] += 1
            if request.transport is not None:
                request.transport.abort()
        response.headers.setdefault("Date", format_datetime(self.state.clock(), usegmt=True))
        return response

    async def respond(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Respond to a request for orders, without a delay."""
        if self.site.behaviour.down:
            return web.Response(status=503, text="Service Unavailable")
        try:
            return await handler(request)
        except BrokenPage:
            return web.Response(status=500, text="Internal Server Error")
        except ValueError:
            return web.Response(status=400, text="Bad Request")
