"""Decides what becomes of a delivery; writes nothing."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ingest.domain.delivery import Bury, DeadReason, Delivery, Fetched, Outcome, RetryLater, Store
from ingest.domain.errors import CredentialFault, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.order import InvalidDocument, decode_order
from ingest.domain.schedule import FIRST_DELAY, retry_delay
from ingest.flow.circuit import ApiAway, Circuit
from ingest.flow.limit import ConcurrencyLimit
from ingest.flow.seams import Upstream


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
        draw: a uniform random number between its arguments, for the retry schedule.
        clock: monotonic seconds, the circuit's.
    """

    def __init__(
        self,
        upstream: Upstream,
        patience: Patience,
        circuit: Circuit,
        limit: ConcurrencyLimit,
        *,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._patience = patience
        self._circuit = circuit
        self._limit = limit
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
            return Bury(DeadReason.INVALID_MESSAGE, "the entry has no valid order_id")
        if delivery.count > self._patience.deliveries:
            # Counted by Redis: a message that kills its worker leaves no attempt behind.
            return Bury(DeadReason.MAX_DELIVERIES, f"delivered {delivery.count - 1} times and never settled")
        asked_at = self._clock()
        try:
            if delivery.document is not None:
                return Store(decode_order(delivery.document, delivery.order_id), delivery.pushed_at())
            fetched = await fetch(delivery.order_id)
            self._circuit.gave(delivery.order_id, asked_at)
            self._limit.answered()
            return Store(decode_order(fetched.body, delivery.order_id), fetched.asked_at)
        except InvalidDocument as error:
            return Bury(DeadReason.INVALID_ORDER, str(error))
        except PermanentFault as fault:
            self._circuit.answered(asked_at)
            self._limit.answered()
            return Bury(fault.reason, str(fault))
        except ThrottledFault as fault:
            self._limit.throttled()
            await self._circuit.judge(delivery.order_id, fault, fault.asked_at or asked_at)
            after = self._draw(FIRST_DELAY, 2 * FIRST_DELAY) if fault.after is None else fault.after
            return RetryLater(after, delivery.attempt, str(fault))
        except (TransientFault, CredentialFault) as fault:
            await self._circuit.judge(delivery.order_id, fault, fault.asked_at or asked_at)
            return self._after_failure(delivery, str(fault))

    def _after_failure(self, delivery: Delivery, error: str) -> Outcome:
        if delivery.attempt >= self._patience.attempts:
            return Bury(DeadReason.ATTEMPTS_EXHAUSTED, error)
        return RetryLater(retry_delay(delivery.attempt, self._draw), delivery.attempt + 1, error)
