"""The clients, which are connections that send the next request after the response to the previous one.

`python -m ingest.bench.clients` reads a line of JSON (`Load`), writes `measuring` when all clients are sending, and at
the end a line of JSON (`Measured`). Requests are prepared beforehand and responses are barely parsed, so that the
clients use little of the CPU time that they measure.
"""

import asyncio
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from random import Random
from typing import Any, cast

import msgspec
import uvloop

from ingest.lab.programs import receive, reply, write_line

_CONCURRENT_CONNECTS = 100
# A server that starves some clients is still measured.
_LONGEST_WARM_UP = 20.0
# On a busy machine, there may be no response within a short time.
_LONGEST_WAIT = 20.0
_BEFORE_RECONNECTING = 0.1

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "p9999": 0.9999}
"""The reported quantiles of the latencies."""


class Request(msgspec.Struct, frozen=True):
    """One request and its expected response.

    Attributes:
        sent: all bytes of the request.
        status: status of the response.
        body: the beginning of the response's body.
    """

    sent: bytes
    status: int
    body: bytes


class Load(msgspec.Struct, frozen=True):
    """The load to send.

    Attributes:
        clients: number of connections.
        seconds: duration of the measurement, which is extended if there is no response yet.
        requests: requests to draw from at random.
        seed: seed of the draws.
    """

    port: int
    clients: int
    seconds: float
    requests: list[Request]
    seed: int


class Measured(msgspec.Struct, frozen=True):
    """The results of the measurement.

    Attributes:
        answered: number of correct responses.
        errors: number of wrong responses and lost connections.
        latencies_ms: latencies by the names of `SHARES`, or empty without responses.
        longest_ms: the longest wait, including requests without a response at the end.
        cpu_seconds: CPU time of the clients' process.
    """

    seconds: float
    answered: int
    errors: int
    latencies_ms: dict[str, float]
    longest_ms: float
    cpu_seconds: float

    def row(self) -> dict[str, Any]:
        """The figures for the report, with each latency as `p50_ms`, or None without responses."""
        found = msgspec.to_builtins(self)
        latencies = found.pop("latencies_ms")
        return {**found, **{f"{name}_ms": latencies.get(name) for name in SHARES}}


class Clients:
    """All clients and their measurements.

    Attributes:
        round: 0 until each client has connected and received a response, then 1 while all send repeatedly.

    Args:
        load: the load to send.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._draw = Random(load.seed).choice
        self._latencies = array("d")
        self._errors = 0
        self.round = 0
        self._live: set[_Client] = set()
        self._waited_for = 0
        self._all_served = asyncio.Event()
        self._answered = asyncio.Event()
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def run(self) -> Measured:
        """Connect, warm up and measure."""
        # A server under full load may accept new connections so slowly that only its first clients are served.
        for first in range(0, self._load.clients, _CONCURRENT_CONNECTS):
            more = min(_CONCURRENT_CONNECTS, self._load.clients - first)
            self._waited_for = more
            await asyncio.gather(*(self._connect() for _ in range(more)))
            await self._all_answered()
        self.round = 1
        self._waited_for = len(self._live)
        for client in [client for client in self._live if client.is_idle]:
            client.send()
        await self._all_answered()
        return await self._measure()

    async def _all_answered(self) -> None:
        await _at_most(_LONGEST_WARM_UP, self._all_served)
        self._all_served.clear()

    async def _measure(self) -> Measured:
        write_line("measuring")
        del self._latencies[:]
        self._errors = 0
        self._answered.clear()
        started, worked = time.perf_counter(), time.process_time()
        await asyncio.sleep(self._load.seconds)
        await _at_most(_LONGEST_WAIT, self._answered)
        latencies, errors = sorted(self._latencies), self._errors
        now = time.perf_counter()
        longest = max([*latencies[-1:], *(now - client.sent_at for client in self._live)], default=0.0)
        return Measured(
            seconds=now - started,
            answered=len(latencies),
            errors=errors,
            latencies_ms={name: percentile(latencies, share) for name, share in SHARES.items()} if latencies else {},
            longest_ms=longest * 1000,
            cpu_seconds=time.process_time() - worked,
        )

    def draw(self) -> Request:
        """The next request."""
        return self._draw(self._load.requests)

    def answered(self, seconds: float, *, is_right: bool) -> None:
        """Record a response."""
        if is_right:
            self._latencies.append(seconds)
        else:
            self._errors += 1
        self._answered.set()

    def first_in_round(self) -> None:
        """Record a client's first response in this round."""
        self._waited_for -= 1
        if self._waited_for == 0:
            self._all_served.set()

    def joined(self, client: "_Client") -> None:
        """Record a connection."""
        self._live.add(client)
        client.send()

    def lost(self, client: "_Client | None" = None) -> None:
        """Replace a client that has lost its connection or could not connect."""
        if client is not None:
            self._live.discard(client)
        self._errors += 1
        task = asyncio.get_running_loop().create_task(self._reconnect())
        self._reconnecting.add(task)
        task.add_done_callback(self._reconnecting.discard)

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: _Client(self), "127.0.0.1", self._load.port)

    async def _reconnect(self) -> None:
        await asyncio.sleep(_BEFORE_RECONNECTING)
        try:
            await self._connect()
        except OSError:
            self.lost()


class _Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._answer = b""
        self._length = 0
        self._request = Request(b"", 0, b"")
        self.sent_at = 0.0
        self._round = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._clients.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._clients.lost(self)

    @property
    def is_idle(self) -> bool:
        """Whether the client has received a response and waits for the others."""
        return self._round == 0

    def send(self) -> None:
        """Send the next request."""
        self._answer, self._length = b"", 0
        self._request = self._clients.draw()
        self.sent_at = time.perf_counter()
        self._transport.write(self._request.sent)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._length:
            self._length = _length(self._answer)
        if self._length and len(self._answer) >= self._length:
            self._end()

    def _end(self) -> None:
        seconds = time.perf_counter() - self.sent_at
        head = b"HTTP/1.1 %d " % self._request.status
        is_right = self._answer.startswith(head) and b"\r\n\r\n" + self._request.body in self._answer
        self._clients.answered(seconds, is_right=is_right)
        if self._round < self._clients.round:
            self._round = self._clients.round
            self._clients.first_in_round()
        if self._round > 0:
            self.send()


def _length(answer: bytes) -> int:
    """The length of a response with its head, which must contain the body's length, or 0 until the head is complete."""
    head, blank, _ = answer.partition(b"\r\n\r\n")
    if not blank:
        return 0
    _, _, rest = head.partition(b"\r\nContent-Length: ")
    return len(head) + len(blank) + int(rest.partition(b"\r\n")[0])


def percentile(ascending: Sequence[float], share: float) -> float:
    """The quantile of the latencies in milliseconds."""
    return ascending[max(0, ceil(share * len(ascending)) - 1)] * 1000


def http_request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of a request on a persistent connection. Header names are written with underscores."""
    named = {"host": "localhost", **headers} | ({"content_length": str(len(body))} if body else {})
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _at_most(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _main() -> None:
    reply(await Clients(receive(Load)).run())


if __name__ == "__main__":
    uvloop.run(_main())
