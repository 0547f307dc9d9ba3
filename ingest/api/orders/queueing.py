"""Enqueues orders for a route, and turns errors into problems."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web

from ingest.api.documentation.documentation import object_schema
from ingest.api.http.failures import as_problems, busy
from ingest.api.http.json_responses import json_response
from ingest.api.http.problems import Problem
from ingest.domain.deliveries.accepted import Accepted
from ingest.operations.control.producer_admission import ProducerAdmission
from ingest.queue.produce.producer import BacklogFull, Producer
from ingest.queue.produce.producer_errors import IdempotencyKeyReused, SourcePaused
from ingest.queue.produce.submission import Orders
from ingest.queue.redis.connection import QueueFull
from ingest.telemetry.shared_metrics import Counter

# The schema of a 202.
ACCEPTED = object_schema(
    "accepted",
    "duplicates",
    accepted={"type": "integer", "minimum": 0, "description": "Orders that were put into the queue."},
    duplicates={
        "type": "integer",
        "minimum": 0,
        "description": "Orders that needed no entry, because an earlier one still waits.",
    },
)


@dataclass(frozen=True, slots=True)
class Queueing:
    """The queue, as routes use it.

    Attributes:
        producer: Enqueues orders.
        accepted: Counts enqueued orders.
        admission: Rejects the orders of a paused source.
        source: The source of the orders.
    """

    producer: Producer
    accepted: Counter
    admission: ProducerAdmission
    source: str

    async def announce(self, orders: Orders, *, key: str | None = None, express: bool = False) -> Accepted:
        """Enqueue orders. When this returns, Redis has them.

        Raises:
            Problem: 422, 429 or 503.
            InvalidOrderId: If an ID is not valid. Then nothing was sent.
        """
        with as_queue_problems():
            await self.admission.admit(self.source)
            accepted = await self.producer.try_announce(orders, idempotency_key=key, express=express)
        self.accepted.inc(accepted.accepted)
        return accepted


@contextmanager
def as_queue_problems() -> Iterator[None]:
    """Turn the errors of enqueueing into problems."""
    with as_problems():
        try:
            yield
        except IdempotencyKeyReused as error:
            # The status of the draft for another payload under a known key.
            raise Problem(422, "idempotency_key_reused", "the Idempotency-Key was used for another payload") from error
        except SourcePaused as error:
            raise busy(503, "source_paused", str(error), error.retry_after) from error
        except BacklogFull as error:
            raise busy(429, "backlog_full", str(error), error.retry_after) from error
        except QueueFull as error:
            raise busy(429, "queue_full", "the queue is out of memory", error.retry_after) from error


def accepted_response(accepted: Accepted) -> web.Response:
    """202, because the orders are in the queue."""
    return json_response({"accepted": accepted.accepted, "duplicates": accepted.duplicates}, 202)
