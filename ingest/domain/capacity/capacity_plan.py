"""Plans the capacity for a rate of orders, including the first limit that it reaches.

docs/explanation/capacity.md describes the formulas and the source of each constant. For another machine, set `speed`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.domain.capacity.worker_memory import worker_memory

_DAY = 86_400.0
# CPU seconds of an order without any other in the process.
_SINGLE_ORDER = 1_526e-6


@dataclass(frozen=True, slots=True)
class ClientCost:
    """CPU time of an order in a worker process, with one HTTP client.

    It falls as the rate of the process rises, because a read, a statement or an ack then serves more orders. The power fits
    measurements without a backlog, at a slow API and at a fast API.

    Attributes:
        least: seconds at the highest rate.
        fastest: orders per second of one process at that rate.
        power: the exponent by which the time rises as the rate falls, up to `_SINGLE_ORDER`.
    """

    least: float
    fastest: float
    power: float

    def of(self, rate: float) -> float:
        """Return the CPU seconds of one order in a process with this rate."""
        return min(_SINGLE_ORDER, self.least * math.pow(self.fastest / min(rate, self.fastest), self.power))


CLIENTS: Mapping[str, ClientCost] = {
    # docs/explanation/performance.md, "Orders from a fast API": each of two processes handles half of the orders.
    "native": ClientCost(79e-6, 8_263.0, 0.48),
    # Measured on a slower machine, and converted by the bare loop of the same run.
    "aiohttp": ClientCost(113e-6, 9_670.0, 0.45),
}
# Share of a core that a process may use. The rest is for peaks, and for reclaiming after a failure.
_BUSY = 0.7
# Measured with ingest bench pipeline --sweep in-flight=...
_MOST_IN_FLIGHT = 1_000
# Orders arrive independently of each other. The number in flight is then Poisson distributed for any distribution of the latency
# (an M/G/infinity queue). Its standard deviation is the square root of its mean.
_DEVIATIONS = 3.0
# Measured with make fleet, with orders enqueued one by one and in lists.
_REDIS_ORDER, _REDIS_ANNOUNCEMENT = 15e-6, 115e-6
# The same row.
_POSTGRES_ORDER = 25e-6
_QUEUED_BYTES, _PENDING_BYTES = 34, 200
_REDIS_BYTES = 8_000_000
_REDIS_CONNECTIONS = 6
# docs/deploy/partitions.md, "Choose a number".
_PARTITIONS_OF_A_NODE = 2
_POSTGRES_CONNECTION_BYTES = 12_000_000
# PostgreSQL compresses larger rows (TOAST). Measured with documents of 0.5 to 20 KB.
_COMPRESSED = 1_900
_OTHER_FILES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDemand:
    """The required rate and the environment.

    Attributes:
        latency: mean latency of the external API, in seconds.
        latency_p99: its 99th percentile, if known.
        order_bytes: mean size of a document.
        client: INGEST_UPSTREAM_CLIENT.
        bulk: orders in one request.
        announced: orders enqueued in one call.
        quota: requests per second that the API permits, or 0 for any number.
        quota_concurrency: concurrent requests that it permits, or 0 for any number.
        outage: seconds of an outage for which Redis can hold all new orders.
        processes_per_host: worker processes of one host.
        postgres_connections: connections that workers may open.
        redis_nodes: primaries of a Redis Cluster, over which the partitions of the queue are spread evenly.
        speed: speed of this machine, relative to the machine of the measurements.
    """

    rate: float
    latency: float
    latency_p99: float | None = None
    order_bytes: int = 1_000
    client: str = "native"
    bulk: int = 1
    announced: int = 1
    quota: float = 0.0
    quota_concurrency: int = 0
    outage: float = 3_600.0
    processes_per_host: int = 2
    postgres_connections: int = 90
    redis_nodes: int = 1
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A resource that limits the rate.

    Attributes:
        what: the name of the resource.
        orders_per_s: the rate that it permits.
    """

    what: str
    orders_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """The resources of all workers for a demand, unless noted. Memory is in bytes, CPU in cores.

    Attributes:
        rate: the possible orders per second, which is the demand or the lowest limit.
        in_flight: orders in flight on average.
        slots: orders in flight to allow over all processes.
        concurrency: INGEST_CONCURRENCY, orders in flight of each process.
        timeout: INGEST_UPSTREAM_TIMEOUT, seconds.
        api_connections: concurrent connections to the external API.
        open_files: of one process.
        host_memory: of one host's worker.
        partitions: INGEST_PARTITIONS.
        redis_connections: to each node.
        redis_cores: of the single thread of each node.
        redis_memory: of each node, with all orders of the outage queued.
        postgres_bytes_a_day: size of the orders of one day.
        limits: sorted, the lowest first.
    """

    rate: float
    in_flight: float
    slots: int
    processes: int
    concurrency: int
    timeout: float
    hosts: int
    api_connections: int
    partitions: int
    redis_connections: int
    postgres_connections: int
    open_files: int
    worker_cores: float
    host_memory: int
    redis_cores: float
    redis_memory: int
    postgres_cores: float
    postgres_memory: int
    postgres_bytes_a_day: int
    limits: Sequence[Limit]


def plan(demand: PlannedDemand) -> CapacityPlan:
    """Return the plan for this demand, up to the lowest limit."""
    limits = sorted(_limits(demand), key=lambda limit: limit.orders_per_s)
    rate = min([demand.rate, *(limit.orders_per_s for limit in limits)])
    slots = slots_for(rate, demand.latency)
    if demand.quota_concurrency:
        slots = min(slots, demand.quota_concurrency * demand.bulk)
    by_cpu = math.ceil(rate / process_rate(demand.client, demand.speed))
    # At least two, so that work continues while one is restarted.
    processes = max(2, by_cpu, math.ceil(slots / _MOST_IN_FLIGHT))
    concurrency = max(math.ceil(slots / processes), demand.bulk)
    in_host = min(processes, demand.processes_per_host)
    backlog = demand.rate * demand.outage
    return CapacityPlan(
        rate=rate,
        in_flight=rate * demand.latency,
        slots=slots,
        processes=processes,
        concurrency=concurrency,
        timeout=timeout_for(demand.latency, demand.latency_p99),
        hosts=math.ceil(processes / demand.processes_per_host),
        api_connections=math.ceil(processes * concurrency / demand.bulk),
        partitions=_PARTITIONS_OF_A_NODE * demand.redis_nodes if demand.redis_nodes > 1 else 1,
        redis_connections=processes * _REDIS_CONNECTIONS,
        postgres_connections=processes,
        open_files=concurrency + _OTHER_FILES,
        worker_cores=rate * CLIENTS[demand.client].of(rate / processes / demand.speed) / demand.speed,
        host_memory=worker_memory(in_host, in_host * concurrency, demand.order_bytes),
        redis_cores=rate * _redis_order(demand) / demand.redis_nodes,
        redis_memory=round(_REDIS_BYTES + (backlog * _QUEUED_BYTES + slots * _PENDING_BYTES) / demand.redis_nodes),
        postgres_cores=rate * _POSTGRES_ORDER / demand.speed,
        postgres_memory=processes * _POSTGRES_CONNECTION_BYTES,
        postgres_bytes_a_day=round(rate * _DAY * stored_bytes(demand.order_bytes)),
        limits=limits,
    )


def slots_for(rate: float, latency: float) -> int:
    """Return the orders in flight to allow, so that orders arriving at random times rarely wait for each other."""
    mean = rate * latency
    return max(1, math.ceil(mean + _DEVIATIONS * math.sqrt(mean)))


def timeout_for(latency: float, latency_p99: float | None = None) -> float:
    """Return the seconds for a request: three times the 99th percentile of the latency, which is estimated if it is unknown."""
    slowest = latency_p99 if latency_p99 is not None else 3 * latency
    return max(5.0, float(math.ceil(3 * slowest)))


def stored_bytes(order_bytes: int) -> float:
    """Return the bytes of an order in PostgreSQL, including its index."""
    return 250 + 1.1 * order_bytes if order_bytes < _COMPRESSED else 200 + 0.5 * order_bytes


def process_rate(client: str, speed: float = 1.0) -> float:
    """Return the orders per second of one process that uses its share of a core."""
    cost = CLIENTS[client]
    # rate * cost(rate) = share, solved for the rate
    fixed = cost.least * math.pow(cost.fastest, cost.power)
    return speed * min(cost.fastest, math.pow(_BUSY / fixed, 1 / (1 - cost.power)))


def _redis_order(demand: PlannedDemand) -> float:
    return (_REDIS_ORDER + _REDIS_ANNOUNCEMENT / demand.announced) / demand.speed


def _limits(demand: PlannedDemand) -> list[Limit]:
    grouping = f"in lists of {demand.announced:,}" if demand.announced > 1 else "one by one"
    redis = f"the cores of {demand.redis_nodes:,} Redis nodes" if demand.redis_nodes > 1 else "Redis' core"
    # By Little's law, or by its share of a core.
    of_a_process = min(_MOST_IN_FLIGHT / demand.latency, process_rate(demand.client, demand.speed))
    limits = [
        Limit(f"{redis}, with orders enqueued {grouping}", demand.redis_nodes * _BUSY / _redis_order(demand)),
        Limit(
            f"{demand.postgres_connections:,} connections to PostgreSQL, one for each process",
            demand.postgres_connections * of_a_process,
        ),
    ]
    if demand.quota:
        limits.append(Limit("the API's requests per second", demand.quota * demand.bulk))
    if demand.quota_concurrency:
        limits.append(Limit("the API's concurrent requests", demand.quota_concurrency / demand.latency * demand.bulk))
    return limits
