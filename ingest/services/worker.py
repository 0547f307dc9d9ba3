"""The composition root of `ingest worker`: builds the parts from the settings, and owns the order of start and stop."""

import asyncio
import secrets
import socket
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.domain.errors import QueueUnavailable, UserError
from ingest.flow.availability import AvailabilityLog, until_ready
from ingest.flow.shutdown import Shutdown
from ingest.process.child import Child
from ingest.process.lifecycle import (
    allow_connections,
    done_unless_stopped,
    listen_for_metrics,
    run_to_the_end,
    serve_until_stopped,
    stop_on,
)
from ingest.process.supervisor import Supervisor
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.operate.partition_monitor import traps_of_servers
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.services.configured_sources import ConfiguredSource, configured_sources
from ingest.services.tracing import require_tracing, tracing_of
from ingest.services.workers.process_sources import ProcessSources
from ingest.services.workers.sources_reload import RETRY_AFTER, Published, ReadAgain, SourcesReload, never_published
from ingest.services.workers.worker_report import WorkerReport
from ingest.settings.packed import LoadedSettings
from ingest.store.schema import check_schema, migrations
from ingest.telemetry.activity import count_activity_on
from ingest.telemetry.logs import get_logger
from ingest.telemetry.looplag import watching_loop
from ingest.telemetry.metrics import IN_FLIGHT, ProcessMetrics, worker_shared_metrics
from ingest.telemetry.shared_metrics import SharedMetrics

if TYPE_CHECKING:
    from ingest.settings import Settings

_log = get_logger("app")
# Consumer groups that are created concurrently at the start.
_GROUPS_AT_ONCE = 10


def run_worker(loaded: LoadedSettings, read_again: ReadAgain) -> int:
    """`ingest worker`: check the servers, then run the worker processes until SIGTERM, and return the exit code.

    Args:
        loaded: the settings of the processes and of their sources.
        read_again: reads the settings, after a file that describes the sources has changed.
    """
    for name, problem in loaded.rejected.items():
        _log.error("source_failed", source=name, problem=problem, retry_in=RETRY_AFTER)
    settings, sources = loaded.settings, loaded.sources
    # If all sources have errors, these are reported here once. Otherwise, each process tries the sources with errors again.
    configured, unusable = configured_sources(settings, sources)
    loaded = loaded._replace(rejected={**loaded.rejected, **unusable})
    listener = listen_for_metrics(settings.metrics_host, settings.metrics_port, "INGEST_METRICS_PORT")
    if not asyncio.run(
        done_unless_stopped(Shutdown(settings.shutdown_grace), _prepare_and_serve(settings, sources, listener))
    ):
        return 0
    require_tracing(settings)
    # An order in flight uses a connection, and each source one more for its reads.
    allow_connections(settings.concurrency + len(sources), "INGEST_CONCURRENCY")
    shared_metrics = worker_shared_metrics(settings.processes, list(sources))
    # A name that no other command uses, and that a restarted process of this one keeps, because its entries are pending under it.
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    reload: SourcesReload | None = None
    published: Published = never_published
    files = [] if settings.sources is None else [Path(settings.sources)]
    if files or any(own.followed for own in sources.values()):
        reload = SourcesReload(files, loaded, read_again)
        published = reload.published
    children = [
        Child(
            f"worker-{slot}",
            partial(_worker_process, loaded, configured, published, shared_metrics, slot, f"{identity}-{slot}"),
            on_death=partial(note_death, shared_metrics, slot),
        )
        for slot in range(settings.processes)
    ]
    if listener is not None:
        serve = partial(_metrics_process, settings, shared_metrics, listener)
        children.append(Child("metrics", serve, listener=listener))
    children += [reload.child] if reload is not None else []
    report = WorkerReport(shared_metrics, has_sources=settings.sources is not None)
    code = Supervisor(children, settings.shutdown_grace, reload=reload, report=report).run()
    # A process that stops by itself reports its own. A killed process has left its gauge unchanged.
    if orphans := int(sum(shared_metrics.total(IN_FLIGHT, source=name)[0] for name in shared_metrics.sources())):
        _log.error("orphans", entries=orphans)
    return code


async def _prepare_and_serve(
    settings: "Settings", sources: "Mapping[str, Settings]", listener: socket.socket | None
) -> None:
    postgres, redis = AvailabilityLog("postgres"), AvailabilityLog("redis")
    async with AsyncExitStack() as stack:
        if listener is not None:
            from ingest.probes.metrics_page import serving_start  # noqa: PLC0415  only for /metrics

            await stack.enter_async_context(serving_start(settings, list(sources), listener, (postgres, redis)))
        await prepare(settings, sources.values(), postgres, redis)


async def prepare(
    settings: "Settings", sources: "Iterable[Settings]", postgres: AvailabilityLog, redis: AvailabilityLog
) -> None:
    """Wait until Redis and PostgreSQL respond, and check that both are ready for the workers.

    A queue is not read without the record of its partitions. Its server also keeps the clock of the queue's versions, and workers with
    another number of partitions would leave orders unread.

    Args:
        settings: of the processes.
        sources: of each source, for its queue.
        postgres: notes why PostgreSQL is waited for.
        redis: notes why Redis is waited for.

    Raises:
        UserError: a server denies access, or the schema belongs to another release or does not suit several sources.
    """
    dsn, has_sources = settings.postgres_dsn.get_secret_value(), settings.sources is not None
    await until_ready(postgres, partial(check_schema, dsn, migrations(), has_sources=has_sources))
    url = settings.redis_url.get_secret_value()
    partitions = {source.stream: source.partitions for source in sources}
    async with QueueConnections.open(url) as connections:
        limit = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def make_group(queue: str) -> QueueUnavailable | None:
            try:
                # It sends no reads.
                opening = connections.access(queue, settings.group, "prepare", connections.looking)
                async with limit, opening as access:
                    await access.ensure_group()
            except QueueUnavailable as error:
                return error
            return None

        async def make_groups() -> None:
            """Workers try the queues and partitions again that are unavailable now, while they process the others."""
            queues, errors = list[str](), list[QueueUnavailable | None]()
            for stream, number in partitions.items():
                try:
                    queues += (await LayoutRecord(connections.control, stream, number).read()).queues
                except QueueUnavailable as error:
                    if isinstance(error, UserError):
                        raise
                    errors.append(error)
            errors += await asyncio.gather(*map(make_group, queues))
            if (failures := [each for each in errors if each is not None]) and len(failures) == len(errors):
                raise failures[0]

        await until_ready(redis, make_groups)
    for trap in await until_ready(redis, traps_of_servers, url):
        _log.warning("redis_configuration", problem=trap)


def _worker_process(
    loaded: LoadedSettings,
    configured: Mapping[str, ConfiguredSource],
    published: Published,
    shared_metrics: SharedMetrics,
    slot: int,
    name: str,
    lifeline: int,
) -> int:
    settings = loaded.settings

    async def main() -> None:
        shutdown = Shutdown(settings.shutdown_grace)
        stop_on(lifeline, shutdown.request)
        metrics = ProcessMetrics.on(shared_metrics, slot)
        count_activity_on(metrics.activity)
        # From the start, because the loop's iterations prove that this process is alive while it waits for a server.
        with watching_loop(metrics.loop_lag, settings.loop_block_warning):
            async with tracing_of(settings, "worker"):
                process = ProcessSources(loaded, configured, published, shared_metrics, slot, name)
                await process.run(shutdown, partial(metrics.ready.set, 1.0))

    return run_to_the_end(main)


def _metrics_process(
    settings: "Settings", shared_metrics: SharedMetrics, listener: socket.socket, lifeline: int
) -> int:
    from ingest.probes.metrics_page import serving_workers  # noqa: PLC0415  imported before the fork

    return serve_until_stopped(serving_workers(settings, shared_metrics, listener), lifeline)


def note_death(shared_metrics: SharedMetrics, slot: int) -> None:
    """Clear the gauges of a worker process that has died, and count its restart."""
    shared_metrics.clear_gauges(slot)
    ProcessMetrics.on(shared_metrics, slot).restarts.inc()
