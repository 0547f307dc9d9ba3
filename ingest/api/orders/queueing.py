"""Puts orders into the queue for a route, and makes answers of what becomes of them."""

import math
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ingest.api.http.problems import Problem
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.errors import QueueUnavailable
from ingest.queue.produce.producer import BacklogFull, Producer
from ingest.queue.produce.producer_errors import IdempotencyKeyReused
from ingest.queue.produce.submission import Orders
from ingest.queue.redis.connection import QueueFull, QueueRefused
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("api")
JSON = "application/json"
# The schema of a 202.
ACCEPTED: dict[str, Any] = {
    "type": "object",
    "required": ["accepted", "duplicates"],
    "properties": {
        "accepted": {"type": "integer", "minimum": 0, "description": "Orders that were put into the queue."},
        "duplicates": {
            "type": "integer",
            "minimum": 0,
            "description": "Orders that needed no entry, because an earlier one still waits.",
        },
    },
}


@dataclass(frozen=True, slots=True)
class Queueing:
    """The queue, as routes use it.

    Attributes:
        producer: takes orders into the queue.
        accepted: counts enqueued orders.
    """

    producer: Producer
    accepted: Counter

    async def announce(self, orders: Orders, *, key: str | None = None, express: bool = False) -> Accepted:
        """Enqueue orders. When this returns, Redis has them.

        Raises:
            Problem: 422, 429 or 503.
            InvalidOrderId: if an ID is not valid. Then nothing was sent.
        """
        try:
            accepted = await self.producer.try_announce(orders, idempotency_key=key, express=express)
        except (QueueUnavailable, BacklogFull, IdempotencyKeyReused) as error:
            raise problem_of(error) from error
        self.accepted.inc(accepted.accepted)
        return accepted


def problem_of(error: QueueUnavailable | BacklogFull | IdempotencyKeyReused) -> Problem:
    """The answer to orders that could not be accepted."""
    match error:
        case IdempotencyKeyReused():
            return key_reused()
        case BacklogFull():
            return busy(429, "backlog_full", str(error), error.retry_after)
        case QueueFull():
            return busy(429, "queue_full", "the queue is out of memory", error.retry_after)
        case QueueRefused():
            _log.error("unavailable", server="redis", error=str(error))
        case _:
            pass
    return unavailable(error.retry_after)


def key_reused() -> Problem:
    """422: the draft's answer to another payload under a known key."""
    return Problem(422, "idempotency_key_reused", "the Idempotency-Key was used for another payload")


def unavailable(retry_after: float) -> Problem:
    """503: Redis cannot be used."""
    return busy(503, "queue_unavailable", "the queue cannot be used right now", retry_after)


def busy(status: int, code: str, detail: str, retry_after: float) -> Problem:
    """A response with a time after which to try again."""
    return Problem(status, code, detail, headers={"Retry-After": str(max(1, math.ceil(retry_after)))})


def answer(accepted: Accepted) -> web.Response:
    """202: the orders are in the queue."""
    body = b'{"accepted":%d,"duplicates":%d}' % (accepted.accepted, accepted.duplicates)
    return web.Response(body=body, status=202, content_type=JSON)
