"""Checks the circuits that worker processes report: whether one waits for an operator."""

from collections.abc import Iterator, Sequence

from ingest.domain.errors import Unavailable, UserError
from ingest.operations.backends import Backends
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.monitor import CircuitState, Monitor
from ingest.queue.redis.connection import control_client

_OF = Checks(Area.UPSTREAM)
_DECIDE = (
    "check INGEST_UPSTREAM_URL with `ingest doctor --order-id ID` and an order that exists; if the queued IDs are wrong, set"
    " INGEST_UPSTREAM_STATUS=404=not_found (or the status that you see), and they become dead letters"
)


async def open_circuits(backends: Backends) -> Sequence[CircuitState]:
    """The open circuits of the processes that are alive; none where Redis does not tell, which another check finds."""
    try:
        async with control_client(backends.redis_url) as client:
            consumers = await Monitor(client, backends.stream, backends.group).consumers()
    except (Unavailable, UserError):
        return ()
    return [consumer.circuit for consumer in consumers if consumer.circuit is not None]


def findings(circuits: Sequence[CircuitState]) -> Iterator[Finding]:
    """What open circuits mean, one finding for each error."""
    for error in sorted({circuit.error for circuit in circuits}):
        alike = [circuit for circuit in circuits if circuit.error == error]
        longest = max(circuit.open_for for circuit in alike)
        what = f"the circuit has been open for {longest:,.0f} s in {len(alike):,} processes: {error}"
        if any(circuit.is_unproven for circuit in alike):
            yield _OF.fault(what, _DECIDE)
        else:
            yield _OF.warning(
                what, "orders wait, and are fetched when the external API works again; see `ingest status`"
            )
