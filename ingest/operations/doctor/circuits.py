"""Checks whether a worker process reports an open circuit that needs an operator."""

from collections.abc import Iterator, Sequence

from ingest.domain.errors import QueueUnavailable
from ingest.operations.backends import Backends
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.partition_monitor import CircuitState
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.redis.connection import control_client

_OF = Checks(Area.UPSTREAM)
_DECIDE = (
    "check INGEST_UPSTREAM_URL with `ingest doctor --order-id ID` and an order that exists. If the queued IDs are wrong, set"
    " INGEST_UPSTREAM_STATUS=404=not_found (or the status that you see) to dead-letter them"
)


async def open_circuits(backends: Backends) -> Sequence[CircuitState]:
    """Return the open circuits of live processes. Raises `QueueUnavailable`."""
    async with control_client(backends.redis_url) as client:
        layout = layout_reader(client, backends.stream)
        consumers = await Monitor(client, layout, backends.group).consumers()
    return [consumer.circuit for consumer in consumers if consumer.circuit is not None]


def findings(circuits: Sequence[CircuitState] | QueueUnavailable) -> Iterator[Finding]:
    """Report open circuits, one finding for each error."""
    if isinstance(circuits, QueueUnavailable):
        return  # reported by the check of Redis
    for error in sorted({circuit.error for circuit in circuits}):
        alike = [circuit for circuit in circuits if circuit.error == error]
        longest = max(circuit.open_for for circuit in alike)
        what = f"the circuit has been open for {longest:,.0f} s in {len(alike):,} processes: {error}"
        if any(circuit.is_unproven for circuit in alike):
            yield _OF.error(what, _DECIDE)
        else:
            yield _OF.warning(what, "orders wait until the external API recovers, see `ingest status`")
