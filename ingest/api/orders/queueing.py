"""Enqueues orders for a route."""

from dataclasses import dataclass

from aiohttp import web

from ingest.api.documentation.documentation import object_schema
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import json_response
from ingest.domain.deliveries.accepted import Accepted
from ingest.operations.control.producer_admission import ProducerAdmission
from ingest.queue.produce.producer import Producer
from ingest.queue.produce.submission import Orders
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
        with as_problems():
            await self.admission.admit(self.source)
            accepted = await self.producer.try_announce(orders, idempotency_key=key, express=express)
        self.accepted.inc(accepted.accepted)
        return accepted


def accepted_response(accepted: Accepted) -> web.Response:
    """202, because the orders are in the queue."""
    return json_response({"accepted": accepted.accepted, "duplicates": accepted.duplicates}, 202)
