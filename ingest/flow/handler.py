"""Decides what becomes of a delivery; writes nothing."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from ingest.domain.delivery import DeadLetter, DeadReason, Delivery, Fetched, Outcome, Retry, Store
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault, TransportFault
from ingest.domain.order import InvalidDocument, Order, TruncatedDocument, decode_order
from ingest.domain.schedule import retry_delay
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.circuit_breaker import ApiAway, CircuitBreaker
from ingest.flow.limit import ConcurrencyLimit
from ingest.flow.ports import Upstream

# Decoding a document takes some 20 ms for each MB: from here on it is done aside, one at a time, so that the loop goes on.
_LARGE = 1024 * 1024
# Seconds until an order comes again that our own client could not ask for.
_OUR_DELAY = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often an order may fail.

    Attributes:
        attempts: failed attempts, then it is buried.
        deliveries: hand-overs counted by Redis, then it is taken for poison.
    """

    attempts: int
    deliveries: int


class Handler:
    """Fetches the order of a delivery, checks it, and returns the outcome.

    Args:
        upstream: where orders come from.
        patience: how often one may fail.
        circuit: tells whether a fault is the order's or the API's.
        limit: learns what the API says of our pace.
        room: taken for a document before it is decoded; an order to store goes on with it.
        draw: a uniform random number between its arguments, for the retry schedule.
        clock: monotonic seconds, the circuit's.
    """

    def __init__(
        self,
        upstream: Upstream,
        patience: Patience,
        circuit: CircuitBreaker,
        limit: ConcurrencyLimit,
        buffer: BufferLimit,
        *,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._patience = patience
        self._circuit = circuit
        self._limit = limit
        self._buffer = buffer
        self._decoding = asyncio.Lock()
        self._draw = draw
        self._clock = clock

    def handle(self, delivery: Delivery) -> Awaitable[Outcome]:
        """The outcome of one delivery. Cancelled or killed there, it has changed nothing.

        Raises:
            ApiAway: if the order could not be had, and that is not its fault.
        """
        if self._circuit.is_open:
            raise ApiAway("the circuit is open")
        return self._decide(delivery, self._upstream.fetch)

    def probe(self, delivery: Delivery) -> Awaitable[Outcome]:
        """As `handle`, with a single request, whatever the circuit says."""
        return self._decide(delivery, self._upstream.fetch_once)

    async def _decide(self, delivery: Delivery, fetch: Callable[[str], Awaitable[Fetched]]) -> Outcome:
        if delivery.order_id is None:
            return DeadLetter(DeadReason.INVALID_MESSAGE, "the entry has no valid order_id")
        if delivery.count > self._patience.deliveries:
            # Counted by Redis: a message that kills its worker leaves no attempt behind.
            return DeadLetter(DeadReason.MAX_DELIVERIES, f"delivered {delivery.count - 1} times and never settled")
        asked_at = self._clock()
        try:
            if delivery.document is not None:
                return await self._read(delivery.document, delivery.order_id, delivery.pushed_at())
            fetched = await fetch(delivery.order_id)
            self._circuit.gave(delivery.order_id, asked_at)
            self._limit.answered()
            return await self._read(fetched.body, delivery.order_id, fetched.asked_at)
        except InvalidDocument as error:
            return self._after_no_order(delivery, error)
        except PermanentFault as fault:
            self._circuit.answered(asked_at)
            self._limit.answered()
            return DeadLetter(fault.reason, str(fault))
        except ThrottledFault as fault:
            after = self._limit.throttled(fault.after, fault.asked_at or asked_at)
            await self._circuit.judge(delivery.order_id, fault, fault.asked_at or asked_at)
            return Retry(after, delivery.attempt, str(fault))
        except (TransientFault, CredentialFault) as fault:
            await self._circuit.judge(delivery.order_id, fault, fault.asked_at or asked_at)
            # The API bears what it is asked for.
            self._limit.answered()
            return self._after_fault(delivery, fault)

    async def _read(self, body: bytes, order_id: str, at: datetime) -> Store:
        """Decode a document when there is room for it; until then it waits as it came."""
        size = len(body)
        await self._buffer.take(size)
        try:
            order = decode_order(body, order_id) if size < _LARGE else await self._decode_aside(body, order_id)
        except BaseException:
            self._buffer.give_back(size)
            raise
        return Store(order, at, size)

    async def _decode_aside(self, body: bytes, order_id: str) -> Order:
        """Decode a large document in a thread: most of that is Python, which lets the loop have its turns."""
        async with self._decoding:
            return await asyncio.to_thread(decode_order, body, order_id)

    def _after_no_order(self, delivery: Delivery, error: InvalidDocument) -> Outcome:
        if isinstance(error, TruncatedDocument) and delivery.document is None:
            # An answer without an announced length ends where its connection does, wherever that was.
            return self._after_failure(delivery, str(error))
        return DeadLetter(DeadReason.INVALID_ORDER, str(error))

    def _after_fault(self, delivery: Delivery, fault: Fault) -> Outcome:
        if isinstance(fault, TransportFault):
            # It was neither the order nor the API: nothing counts, and it need not come again at once.
            return Retry(self._draw(_OUR_DELAY, 2 * _OUR_DELAY), delivery.attempt, str(fault))
        return self._after_failure(delivery, str(fault))

    def _after_failure(self, delivery: Delivery, error: str) -> Outcome:
        if delivery.attempt >= self._patience.attempts:
            return DeadLetter(DeadReason.ATTEMPTS_EXHAUSTED, error)
        return Retry(retry_delay(delivery.attempt, self._draw), delivery.attempt + 1, error)
