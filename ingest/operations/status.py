"""Reads the state of a service at one moment: its queue, its consumers and its stored orders."""

from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import Unavailable, UserError
from ingest.operations.backends import Backends
from ingest.queue.operate.monitor import ConsumerState, Monitor
from ingest.queue.redis.connection import control_client
from ingest.store.orders.rows import Overview, overview


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """The state at one moment. A part whose server is unavailable is None, and `errors` contains the reason.

    Attributes:
        at: time of reading, ISO 8601 in UTC.
        errors: error texts by server, `redis` and `postgres`.
    """

    at: str
    stream: str
    group: str
    queue: QueueState | None
    consumers: list[ConsumerState] | None
    orders: Overview | None
    errors: dict[str, str]


async def read_status(backends: Backends) -> SystemStatus:
    """Read the state. An unavailable server is reported, not raised."""
    errors: dict[str, str] = {}
    queue = consumers = orders = None
    try:
        async with control_client(backends.redis_url) as client:
            monitor = Monitor(client, backends.stream, backends.group)
            queue, consumers = await monitor.state(), await monitor.consumers()
    except (Unavailable, UserError) as error:
        errors["redis"] = str(error)
    try:
        orders = await overview(backends.postgres_dsn)
    except (Unavailable, UserError) as error:
        errors["postgres"] = str(error)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return SystemStatus(now, backends.stream, backends.group, queue, consumers, orders, errors)
