"""Decides what becomes of a delivery; writes nothing."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.domain.delivery import Bury, DeadReason, Delivery, Outcome, RetryLater, Store
from ingest.domain.errors import PermanentFault, ThrottledFault, TransientFault
from ingest.domain.order import InvalidDocument, decode_order
from ingest.domain.schedule import FIRST_DELAY, retry_delay
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


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Handler:
    """Fetches the order of a delivery, checks it, and returns the outcome.

    Args:
        upstream: where orders come from.
        patience: how often one may fail.
        now: the wall clock, for the time of a document that came with its entry.
        draw: a uniform random number between its arguments, for the retry schedule.
    """

    def __init__(
        self,
        upstream: Upstream,
        patience: Patience,
        *,
        now: Callable[[], datetime] = _utc_now,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._upstream = upstream
        self._patience = patience
        self._now = now
        self._draw = draw

    async def handle(self, delivery: Delivery) -> Outcome:
        """The outcome of one delivery. Cancelled or killed here, it has changed nothing."""
        if delivery.order_id is None:
            return Bury(DeadReason.INVALID_MESSAGE, "the entry has no valid order_id")
        if delivery.count > self._patience.deliveries:
            # Counted by Redis: a message that kills its worker leaves no attempt behind.
            return Bury(DeadReason.MAX_DELIVERIES, f"delivered {delivery.count - 1} times and never settled")
        try:
            if delivery.document is not None:
                return Store(decode_order(delivery.document, delivery.order_id), self._now())
            fetched = await self._upstream.fetch(delivery.order_id)
            return Store(decode_order(fetched.body, delivery.order_id), fetched.asked_at)
        except InvalidDocument as error:
            return Bury(DeadReason.INVALID_ORDER, str(error))
        except PermanentFault as fault:
            return Bury(fault.reason, str(fault))
        except ThrottledFault as fault:
            after = self._draw(FIRST_DELAY, 2 * FIRST_DELAY) if fault.after is None else fault.after
            return RetryLater(after, delivery.attempt, str(fault))
        except TransientFault as fault:
            return self._after_failure(delivery, str(fault))

    def _after_failure(self, delivery: Delivery, error: str) -> Outcome:
        if delivery.attempt >= self._patience.attempts:
            return Bury(DeadReason.ATTEMPTS_EXHAUSTED, error)
        return RetryLater(retry_delay(delivery.attempt, self._draw), delivery.attempt + 1, error)
