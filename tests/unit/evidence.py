"""Shared parts of the tests of the circuit: a fake API, a clock to set, and classifications."""

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.flow.circuit.breaker import CircuitBreaker, FaultOf
from ingest.telemetry.shared_metrics import Gauge

BROKEN = TransientFault("HTTP 500")
REFUSED = TransientFault("connection refused", reached=False)
UNAUTHORIZED = CredentialFault("HTTP 401")
THROTTLED = ThrottledFault("HTTP 503 with Retry-After", 20.0)
GONE = PermanentFault(DeadReason.NOT_FOUND, "HTTP 404")
LONG = 3600.0  # an evidence window that no test waits out
SHORT = 0.05  # an evidence window that a test waits out, by the real clock


@dataclass
class Hand:
    """A clock whose hand the test moves, in seconds."""

    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Api:
    """The requests for evidence and their results, which arrive after `open`."""

    fault: Fault | None = None
    asked: list[str] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, request: FetchRequest) -> Fault | None:
        self.asked.append(request.order_id)
        await self.open.wait()
        return self.fault


def answering(fault: Fault | None = None) -> Api:
    """An API that responds immediately."""
    api = Api(fault)
    api.open.set()
    return api


def gauge_of(cells: "array[float]") -> Gauge:
    return Gauge(memoryview(cells), 0)


async def nothing_stored(count: int) -> Sequence[str]:
    """The table is empty."""
    del count
    return ()


def circuit(
    api: Api | Callable[[FetchRequest], Awaitable[Fault | None]] | None = None,
    concurrency: int = 100,
    *,
    window: float = LONG,
    clock: Callable[[], float] = time.monotonic,
    high: bool = True,
    stored: Callable[[int], Awaitable[Sequence[str]]] | None = None,
) -> CircuitBreaker:
    return CircuitBreaker(
        api.ask if isinstance(api, Api) else api or Api().ask,
        gauge_of(array("d", [0.0])),
        gauge_of(array("d", [0.0])),
        stored or nothing_stored,
        concurrency,
        window=window,
        response_window=window,
        clock=clock,
        draw=lambda least, most: most if high else least,
    )


def knowing_an_order(api: Api) -> tuple[CircuitBreaker, Hand]:
    """A circuit for which the API has delivered an order a second ago, and its clock."""
    hand = Hand()
    watched = circuit(api, clock=hand)
    watched.record_success(FetchRequest("had"), hand.at)
    hand.at += 1
    return watched, hand


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def exchange(order_id: str, started_at: float) -> Exchange:
    return Exchange((FetchRequest(order_id),), started_at)


async def classifying(
    circuit: CircuitBreaker, order_id: str, fault: Fault, started_at: float
) -> "asyncio.Task[FaultOf]":
    """A classification that has begun, and is done if it does not need to wait."""
    task = asyncio.create_task(circuit.classify(exchange(order_id, started_at), fault))
    await some_turns()
    return task


async def fault_of(task: "asyncio.Task[FaultOf]", within: float = 10.0) -> str:
    """Who is at fault."""
    async with asyncio.timeout(within):
        return "API" if await task is FaultOf.API else "order"


async def drop(*tasks: "asyncio.Task[FaultOf]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def opened(watched: CircuitBreaker) -> None:
    """Let it open: many fail, and nothing was ever answered."""
    now = watched._clock()
    tasks = [await classifying(watched, f"order-{number}", REFUSED, now) for number in range(10)]
    assert {await fault_of(task, within=1) for task in tasks} == {"API"}
    assert watched.is_open
