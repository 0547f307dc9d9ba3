"""The real `ingest api` with a key that holds as much as it can, and other callers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import webhook_requests as made
from acceptance.commands import WorkerCommand
from support import Cli, eventually

from ingest.domain.api_key import Scope
from ingest.operations import api_keys

WEBHOOKS = '[sources.shop]\nprofile = "shopify"\nsecret_files = ["shopify"]\n'


@dataclass(frozen=True)
class Served:
    """A running API.

    Attributes:
        greedy: the key that holds as much as it can.
        cookie: a session of this key.
        other: another key.
    """

    command: WorkerCommand
    url: str
    greedy: str
    cookie: str
    other: str

    @property
    def process(self) -> int:
        return self.command.pid_of("api-0")

    def get(self, path: str) -> bytes:
        """A request of the greedy key."""
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.greedy}\r\nCookie: {self.cookie}\r\n\r\n"
        return head.encode()

    def upload(self, lines: bytes) -> bytes:
        """An upload of orders by the greedy key that does not end."""
        head = (
            f"POST /v1/orders HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.greedy}\r\nContent-Type: application/x-ndjson\r\n"
        )
        return f"{head}Content-Length: 10000000\r\n\r\n".encode() + lines

    def push(self, document: bytes) -> bytes:
        """A document of the greedy key without its last byte."""
        head = f"PUT /v1/orders/1 HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.greedy}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(document) + 1}\r\n\r\n".encode() + document

    @asynccontextmanager
    async def client(self, key: str) -> AsyncIterator[aiohttp.ClientSession]:
        """A client with a new connection for each request."""
        connector, timeout = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(total=15)
        headers = {"X-API-Key": key} if key else {}
        async with aiohttp.ClientSession(self.url, headers=headers, connector=connector, timeout=timeout) as http:
            yield http

    async def admitted(self, paths: Sequence[str] = ()) -> int:
        """How many of twenty requests of another key get a response that is no error, in turn an enqueued order and the paths."""
        count = 0
        async with self.client(self.other) as http:
            for number in range(20):
                path = [None, *paths][number % (len(paths) + 1)]
                body = {"order_ids": [f"o{number}"]}
                sent = http.post("/v1/orders", json=body) if path is None else http.get(path)
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with sent as response:
                        await response.read()
                        count += response.status in (200, 202)
        return count

    async def admitted_webhooks(self) -> int:
        """How many of twenty signed webhooks are accepted."""
        count = 0
        async with self.client("") as http:
            for number in range(20):
                body = b'{"id": %d}' % number
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with http.post("/v1/webhooks/shop", data=body, headers=made.shopify(body)) as response:
                        count += response.status == 200
        return count


@asynccontextmanager
async def served(cli: Cli, folder: Path, **settings: object) -> AsyncIterator[Served]:
    """An API with keys and a webhook."""
    keys, webhooks = folder / "keys", folder / "webhooks.toml"
    greedy, other = (api_keys.create(keys, name, [*Scope], None)[0] for name in ("greedy", "other"))
    (folder / "shopify").write_text(made.SECRET)
    webhooks.write_text(WEBHOOKS)
    given = {
        "api_port": 0,
        "api_metrics_port": 0,
        "api_keys_file": keys,
        "webhooks": webhooks,
        **settings,
    }
    command = WorkerCommand(cli.start("api", env={f"INGEST_{name.upper()}": str(each) for name, each in given.items()}))
    try:
        url = str((await command.says("listening"))["url"])
        async with aiohttp.ClientSession(url) as http:

            async def is_ready() -> bool:
                async with http.get("/readyz") as response:
                    return response.status == 200

            await eventually(is_ready)
            sent = http.post("/console/login", data={"key": greedy}, headers={"Origin": url}, allow_redirects=False)
            async with sent as response:
                cookie = response.headers["Set-Cookie"].partition(";")[0]
        yield Served(command, url, greedy, cookie, other)
    finally:
        command.close()


@asynccontextmanager
async def held(
    served: Served, request: bytes, count: int, then: Callable[[socket.socket], None] = lambda _: None
) -> AsyncIterator[None]:
    """So many connections that send the request and read nothing. Every tenth of a second, `then` is called with each of them."""
    loop = asyncio.get_running_loop()
    address = ("127.0.0.1", int(served.url.rpartition(":")[2]))

    async def hold() -> None:
        # The API may end it at any time.
        with closing(socket.socket()) as sock, suppress(OSError):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(sock, address)
            await loop.sock_sendall(sock, request)
            sent.release()
            while True:
                await asyncio.sleep(0.1)
                with suppress(BlockingIOError):
                    then(sock)

    sent = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(hold()) for _ in range(count)]
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                for _ in tasks:
                    await sent.acquire()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
