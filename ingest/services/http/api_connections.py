"""The connections of a process of the HTTP API. All sources share them, and each has its own parts that use them."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from redis.asyncio import Redis

from ingest.api.source_connections import SourceConnections
from ingest.domain.partitions import Layout
from ingest.operations.backends import Backends
from ingest.operations.control.control_access import ControlAccess
from ingest.operations.control.producer_admission import ProducerAdmission
from ingest.operations.failed_orders.entry_counts import EntryCounts
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.operations.stored_orders.order_connections import OrderConnections
from ingest.operations.stored_orders.orders import Orders
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.retries import Retries
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.repeated_calls import refuse_to_wait
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.idempotent_calls import IdempotentCalls
from ingest.queue.produce.producer import Producer, producer_client
from ingest.queue.redis.connection import control_client
from ingest.services.http.api_jobs import running_jobs
from ingest.services.jobs.job_runs import JobRuns
from ingest.settings import Settings
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs


@dataclass(frozen=True, slots=True)
class RouteConnections:
    """The connections of the routes, which are made when they are first used.

    Attributes:
        redis: of all sources.
        pool: of all sources.
        controls: of the deployment.
        admission: rejects the orders of paused sources.
        sources: by the name of the source.
        groups: of the dead letters and retries of all sources.
        job_runs: runs jobs in this process.
        counts: of the dead letters and retries of selections.
    """

    redis: Redis
    pool: Pool
    controls: ControlAccess
    admission: ProducerAdmission
    sources: Mapping[str, SourceConnections]
    groups: GroupSurveys
    job_runs: JobRuns
    counts: EntryCounts

    @classmethod
    def none(cls, sources: Collection[str]) -> Self:
        """Return no connections to these sources, for routes that are described and not called."""
        no: Any = None
        of_source = SourceConnections(no, no, no, no, no, no, no, no, no)
        return cls(no, no, no, no, dict.fromkeys(sources, of_source), no, no, no)


@asynccontextmanager
async def open_connections(settings: Settings, sources: Mapping[str, Settings]) -> AsyncIterator[RouteConnections]:
    """Open the connections of one process. Their number does not depend on the number of sources."""
    url, dsn = settings.redis_url.get_secret_value(), settings.postgres_dsn.get_secret_value()
    async with (
        control_client(url) as redis,
        producer_client(url, settings.durability) as producing,
        OrderConnections.open(url, dsn) as finding,
        Pool.open(dsn, size=2) as pool,
        AsyncExitStack() as stack,
    ):
        opened = {
            name: await stack.enter_async_context(_open_source(each, redis, producing, finding, pool))
            for name, each in sources.items()
        }
        entries = {name: each.entries for name, each in opened.items()}
        groups = await stack.enter_async_context(GroupSurveys(entries))
        counts = await stack.enter_async_context(EntryCounts(entries))
        servers = {name: Backends.of(each) for name, each in sources.items()}
        controls = ControlAccess(redis, pool, servers)
        runs = await stack.enter_async_context(running_jobs(redis, pool, servers))
        admission = ProducerAdmission(controls.record)
        yield RouteConnections(redis, pool, controls, admission, opened, groups, runs, counts)


@asynccontextmanager
async def _open_source(
    settings: Settings, redis: Redis, producing: Redis, finding: OrderConnections, pool: Pool
) -> AsyncIterator[SourceConnections]:
    servers = Backends.of(settings)
    producer = Producer(
        producing,
        servers.stream,
        partitions=servers.partitions,
        backlog_limit=settings.backlog_limit,
        durability=settings.durability,
        replicas=settings.durability_replicas,
    )
    layout = LayoutRecord(redis, servers.stream, servers.partitions).recent
    assumed = Layout(servers.stream, servers.partitions)
    async with Orders.open(servers, finding) as orders:
        try:
            yield SourceConnections(
                producer,
                IdempotentCalls(redis, servers.stream, partitions=servers.partitions),
                orders,
                Monitor(redis, layout, servers.group),
                Retries(redis, layout, servers.group, assumed),
                DeadLetters(redis, layout, group=servers.group, on_wait=refuse_to_wait, assumed=assumed),
                AuditLog(pool, servers.source),
                Jobs(pool, servers.source),
                JobOutput(pool, servers.source),
            )
        finally:
            await producer.close()
