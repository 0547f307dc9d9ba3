"""Puts the traces of deliveries around the ports of a worker."""

import msgspec

from ingest.flow.tracing.delivery_traces import DeliveryTraces
from ingest.flow.tracing.traced_ports import TracedReading, TracedSettling
from ingest.services.workers.worker_ports import Ports, Queue
from ingest.telemetry.tracing.port import Tracing


def traced_ports(ports: Ports, tracing: Tracing, source: str) -> tuple[Ports, DeliveryTraces]:
    """Return the ports of a worker with the traces of its deliveries around them."""
    traces = DeliveryTraces(tracing, source)
    queue = Queue(
        TracedReading(ports.queue.reading, traces),
        TracedSettling(ports.queue.settling, traces),
        ports.queue.liveness,
        ports.queue.maintenance,
    )
    return msgspec.structs.replace(ports, queue=queue), traces
