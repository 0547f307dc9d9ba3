"""The processes that the alerts watch: shops, workers, HTTP API and perhaps the exporter, with everything that can be broken."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import aiohttp
from aiohttp import web
from proxy import Proxy
from support import eventually

from ingest.domain.source_name import queue_of
from ingest.lab.http_api import wait_until_served
from ingest.lab.servers.server import free_port
from ingest.queue.layout.keys import Keys

if TYPE_CHECKING:
    from rehearsals.alerting.deployments import Deployment
    from rehearsals.alerting.monitoring import Monitoring

    from ingest.bench.stage import Stage
    from ingest.lab.commands import LoggedProcess

# One source for each alert of a source, so that all of them can be caused concurrently.
SOURCES = (
    "ahead", "apart", "down", "failing", "forbidden", "gone", "listed", "paused", "signed", "slow", "throttled", "totals", "unknown", "unread", "wrong",
)  # fmt: skip
APART = "apart"
_ALONE = {
    "listed": 'poll = 1\nlist = { url = "URL/listed?since={since}", items = "orders", id = "id" }\n',
    "signed": 'webhook = { profile = "shopify", secret_files = ["secret"] }\n',
    "unread": 'webhook = { profile = "shopify", secret_files = ["missing"] }\n',
    "slow": "concurrency = 1\n",
    "totals": 'mapping = "totals.toml"\n',
}
_MAPPING = """
[order]
id = "id"
status = "status"
placed_at = "placed_at"
currency = "currency"
total = "total"

[[lines]]
from = "lines"
sku = "sku"
quantity = "quantity"
unit_price = "unit_price"
"""
Shop = Callable[[str], Awaitable[web.Response]]


def good(order_id: str) -> web.Response:
    """The response of a shop that works."""
    line = {"sku": "A", "description": None, "quantity": 2, "unit_price": "2.50"}
    order = {
        "id": order_id, "status": "placed", "placed_at": "2026-01-02T03:04:05Z", "updated_at": None, "currency": "EUR",
        "customer_id": None, "country": None, "total": "5.00", "lines": [line],
    }  # fmt: skip
    return web.json_response(order)


async def slow(order_id: str) -> web.Response:
    """The response of a shop that takes a second."""
    await asyncio.sleep(1)
    return good(order_id)


async def _good(order_id: str) -> web.Response:
    return good(order_id)


class System:
    """The running deployment.

    Attributes:
        on: its servers and commands.
        redis: the network between the deployment and Redis.
        stack: ends further servers with the deployment.
        shops: the response of each shop to a request for an order, by source. A shop without one works.
        lists_work: whether the list of orders of a shop is served.
        processes: the running commands by name, of which Prometheus scrapes all but the API as the job `ingest`.
    """

    def __init__(
        self,
        on: Stage,
        deployment: Deployment,
        monitoring: Monitoring,
        http: aiohttp.ClientSession,
        stack: AsyncExitStack,
    ) -> None:
        self.on = on
        self.stack = stack
        self.shops: dict[str, Shop] = {}
        self.lists_work = True
        self.processes: dict[str, LoggedProcess] = {}
        self._ports: dict[str, int] = {}
        self._shops_url = ""
        self._deployment = deployment
        self._monitoring = monitoring
        self._http = http

    @classmethod
    @asynccontextmanager
    async def open(cls, on: Stage, deployment: Deployment, monitoring: Monitoring) -> AsyncIterator[System]:
        """Start everything. Workers use Redis as a user whose rights can be changed."""
        async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:
            system = cls(on, deployment, monitoring, http, stack)
            application = web.Application()
            application.router.add_get("/{source}/orders/{order_id:.*}", system._order)
            application.router.add_get("/listed", system._list)
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", free_port())
            await site.start()
            system._shops_url = site.name
            system._configure()
            await system.start("api", "api")
            if deployment.has_exporter:
                await system.start("exporter", "exporter")
            await system.start_workers()
            yield system

    def url_of(self, source: str) -> str:
        """The template of the URL of an order at a shop."""
        return f"{self._shops_url}/{source}/orders/{{order_id}}"

    def _configure(self) -> None:
        home = self.on.home
        (home / "totals.toml").write_text(_MAPPING)
        (home / "secret").write_text("a-secret-of-the-shop\n")
        (home / "sources.toml").write_text("\n".join(self._section(name) for name in SOURCES))
        self.permit()
        parts = urlsplit(self.on.redis_url)
        self.redis = self.stack.enter_context(Proxy(int(parts.port or 6379)))
        credential = parts.netloc.rpartition("@")[0]
        behind = [f"{user}@127.0.0.1:{self.redis.port}" for user in (credential, "worker:worker")]
        of_others, self._of_workers = (parts._replace(netloc=netloc.removeprefix("@")).geturl() for netloc in behind)
        self.on.commands.configure(
            {"INGEST_SOURCES": str(home / "sources.toml"), "INGEST_LOG_FORMAT": "json", "INGEST_REDIS_URL": of_others}
        )

    def _section(self, name: str) -> str:
        more = _ALONE.get(name, "").replace("URL", self._shops_url)
        return f'[sources.{name}]\n{more}upstream = {{ url = "{self.url_of(name)}", tries = 1 }}\n'

    @property
    def workers(self) -> list[str]:
        """The names of the worker commands."""
        return [name for name in self.processes if name not in {"api", "exporter"}]

    # -- processes --------------------------------------------------------------------------------------------

    async def start(self, name: str, command: str, *options: str, **environment: str) -> None:
        """Start a command under this name, and let Prometheus scrape it once it serves /metrics."""
        port = self._ports.setdefault(name, free_port())
        if command == "api":
            self._api = free_port()
            environment |= {"INGEST_API_METRICS_PORT": str(port), "INGEST_API_PORT": str(self._api)}
        environment |= {"INGEST_METRICS_PORT": str(port)}
        self.processes[name] = self.on.commands.start(command, *options, **environment)
        await asyncio.to_thread(wait_until_served, [self.processes[name]], port)
        self.scrape(*self.processes)

    def scrape(self, *names: str) -> None:
        """Let Prometheus scrape these processes."""
        self._monitoring.scrape("ingest", {name: self._ports[name] for name in names if name != "api"})
        self._monitoring.scrape("ingest-api", {name: self._ports[name] for name in names if name == "api"})

    async def start_workers(self) -> None:
        """Start a worker command for most sources, and one for the source `apart`."""
        chosen = [option for name in SOURCES if name != APART for option in ("--source", name)]
        await self._start_worker("worker", *chosen)
        await self.start_apart()

    async def start_apart(self) -> None:
        """Start the worker command of the source `apart`."""
        await self._start_worker(APART, "--source", APART)

    async def _start_worker(self, name: str, *options: str) -> None:
        await self.start(name, "worker", "--processes", "1", *options, INGEST_REDIS_URL=self._of_workers)

    async def stop(self, *names: str) -> None:
        """Stop commands in order, and remove them from the targets if an orchestrator does."""
        if not self._deployment.keeps_targets:
            self.scrape(*(name for name in self.processes if name not in names))
        for name in names:
            await asyncio.to_thread(self.processes.pop(name).stop, 60)

    async def run(self, *command: str) -> None:
        """Run a command to its end."""
        await asyncio.to_thread(self.on.commands.start(*command).finish)

    def signal_all(self, name: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a command, because each of them may serve /metrics."""
        os.killpg(self.processes[name].pid, number)

    async def kill_child(self, name: str) -> None:
        """Kill the worker process of a command, and wait for its successor."""
        started = self._started(name)
        os.kill(started[-1], signal.SIGKILL)
        await eventually(lambda: len(self._started(name)) > len(started), every=0.1)

    def _started(self, name: str) -> list[int]:
        """The worker processes of a command that have started, by its log."""
        lines = self.processes[name].log.read_text(errors="replace").splitlines()
        events = [json.loads(line) for line in lines if '"process_started"' in line and line.endswith("}")]
        return [int(event["pid"]) for event in events if event["process"] == "worker-0"]

    def permit(self, *, without: str = "", commands: str = "+@all") -> None:
        """Give the workers access to all keys except those that begin with `without`, by these rules for commands."""
        names = [f"{{orders/{name}}}:*" for name in SOURCES]
        allowed = [f"~ingest:{name}" for name in ("{orders}:*", "{quota:*}:*", *names) if f"{{{without}}}:*" != name]
        self.on.redis.execute_command(
            "ACL", "SETUSER", "worker", "reset", "on", ">worker", "resetkeys", *allowed, *commands.split()
        )

    # -- orders and shops -------------------------------------------------------------------------------------

    async def enqueue(self, source: str, *order_ids: str) -> None:
        """Enqueue orders by the HTTP API."""
        async with self._http.post(f"{self._url}/sources/{source}/orders", json={"order_ids": order_ids}) as response:
            assert response.status == 202, await response.text()

    def use_up_entry_ids(self, source: str) -> None:
        """Add an order with the largest entry ID, after which Redis rejects every further order."""
        largest = "-".join([str(2**64 - 1)] * 2)
        self.on.redis.xadd(Keys.of(queue_of(self.on.stream, source)).stream, {"order_id": "last"}, id=largest)

    async def post_webhook(self, source: str, signature: str) -> int:
        """Send a webhook with this signature, and return the status."""
        headers = {"X-Shopify-Hmac-Sha256": signature, "X-Shopify-Topic": "orders/create"}
        async with self._http.post(f"{self._url}/webhooks/{source}", json={"id": 1}, headers=headers) as response:
            return response.status

    @asynccontextmanager
    async def steadily(self, source: str, *order_ids: str) -> AsyncIterator[None]:
        """Enqueue further orders five times per second, whose IDs begin with these. Failures are ignored."""

        async def run() -> None:
            number = 0
            while True:
                number += 1
                with suppress(AssertionError, aiohttp.ClientError):
                    await self.enqueue(source, *(f"{order_id}-{number}" for order_id in order_ids))
                await asyncio.sleep(0.2)

        task = asyncio.create_task(run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def finished(self, source: str, within: float = 120.0) -> None:
        """Wait until no order of a source waits or is retried."""

        keys = Keys.of(queue_of(self.on.stream, source))

        async def is_finished() -> bool:
            with self.on.redis.pipeline() as pipe:
                pipe.xlen(keys.stream)
                pipe.zcard(keys.retry)
                return not any(pipe.execute())

        await eventually(is_finished, within=within, every=0.2)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._api}/v1"

    async def _order(self, request: web.Request) -> web.Response:
        order_id = unquote(request.match_info["order_id"])
        return await self.shops.get(request.match_info["source"], _good)(order_id)

    async def _list(self, request: web.Request) -> web.Response:
        del request
        return web.Response(
            text=json.dumps({"orders": []}), content_type="application/json", status=200 if self.lists_work else 500
        )
