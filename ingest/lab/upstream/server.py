"""Starts and stops the simulated external API in any running event loop."""

import asyncio
import errno
import secrets
import ssl
from random import Random
from typing import Self

from ingest.domain.errors import UserError
from ingest.lab.upstream.behaviour import Behaviour, changed
from ingest.lab.upstream.catalogue import ORDERS
from ingest.lab.upstream.connection import Connection, Roster
from ingest.lab.upstream.control import Control
from ingest.lab.upstream.credentials import TOKEN, Authority
from ingest.lab.upstream.listing import LIST
from ingest.lab.upstream.samples import sample_orders
from ingest.lab.upstream.site import Site
from ingest.lab.upstream.stats import StatsReport
from ingest.lab.upstream.wheel import Wheel

BACKLOG = 4096
"""Connections that can wait to be accepted. A benchmark opens a thousand concurrently."""


class SimulatedApi:
    """An external API with a configured behaviour.

    ```python
    async with SimulatedApi(Behaviour(latency="0.1-0.2")) as api:
        ...                              # fetch from api.url_template
        api.behave(error_rate=0.01)
        api.stats().peak_concurrency
    ```

    Attributes:
        seed: seed of the random generator. The same seed draws the same faults.
        url_template: URL of an order with `{order_id}`, set at the start.
        list_template: URL of several orders with `{order_ids}`, set at the start.
        token_url: URL of the authorization server, set at the start.
        base_url: URL of the control routes, set at the start.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.seed = secrets.randbits(32) if seed is None else seed
        self._host = host
        self._tls = tls
        self._port = port
        self._site = Site(sample_orders(), changed(behaviour or Behaviour(), {}), Random(self.seed))
        self._control = Control(self._site)

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            UserError: the server cannot listen on the address.
        """
        loop = asyncio.get_running_loop()
        self._wheel = wheel = Wheel(loop)
        self._roster = roster = Roster()

        def connection() -> Connection:
            return Connection(self._site, self._control, wheel, roster)

        try:
            self._server = await loop.create_server(connection, self._host, self._port, backlog=BACKLOG, ssl=self._tls)
        except OSError as error:
            raise UserError(_cannot_listen(self._host, self._port, error)) from error
        # The first address from the system, because a name can have two addresses with a free port each.
        host, port, *_ = self._server.sockets[0].getsockname()
        scheme = "http" if self._tls is None else "https"
        self.base_url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        self.token_url = f"{self.base_url}{TOKEN.decode()}"
        self.url_template = f"{self.base_url}{ORDERS.decode()}{{order_id}}"
        self.list_template = f"{self.base_url}{LIST.decode()}?ids={{order_ids}}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop immediately, and drop requests in flight like a server that crashes."""
        self._server.close()
        self._wheel.stop()
        await self._roster.close()
        await self._server.wait_closed()

    @property
    def authority(self) -> Authority:
        """The authorization server."""
        return self._site.authority

    @property
    def behaviour(self) -> Behaviour:
        """The current behaviour."""
        return self._site.behaviour

    def behave(self, **changes: object) -> Behaviour:
        """Change some fields of the behaviour, and return the new behaviour.

        Raises:
            ValueError: a field is unknown, or a value has the wrong type or is out of range.
        """
        self._site.behave(changed(self._site.behaviour, changes))
        return self._site.behaviour

    def stats(self) -> StatsReport:
        """Return the counters."""
        return self._site.report()

    def reset_stats(self) -> None:
        """Reset the counters."""
        self._site.stats.reset()
        self._site.authority.reset()

    def put_order(self, order_id: str, document: bytes) -> None:
        """Serve exactly these bytes for an order from now on."""
        self._site.catalogue.put(ORDERS + order_id.encode(), document)

    def delete_order(self, order_id: str) -> None:
        """Respond with 404 for an order from now on."""
        self._site.catalogue.delete(ORDERS + order_id.encode())


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is already taken; choose another with --port, or 0 for any free one"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}"
