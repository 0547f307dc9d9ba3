"""The composition root of `ingest relay`, a single process."""

import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.errors import ConfigError, QueueUnavailable
from ingest.flow.shutdown import Shutdown
from ingest.operations.control.producer_admission import ProducerAdmission
from ingest.operations.relay.relay import Relay
from ingest.operations.relay.rows import RowEnqueuer
from ingest.operations.relay.source_queues import SourceQueues
from ingest.probes.metrics_page import serving
from ingest.process.interrupt import run_interruptible
from ingest.process.lifecycle import listen_for_metrics, run_to_the_end, stop_on_signals, unless
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.produce.producer import Producer, producer_client
from ingest.queue.produce.producer_errors import CannotConfirm
from ingest.services.tracing import tracing_of
from ingest.settings import Settings
from ingest.settings.source_file import source_settings_without_secrets
from ingest.store.outbox.outbox import Outbox
from ingest.telemetry.liveness import ProcessLiveness
from ingest.telemetry.logs import get_logger
from ingest.telemetry.looplag import watching_loop
from ingest.telemetry.relay_metrics import RELAY_METRICS, RelayMetrics
from ingest.telemetry.shared_metrics import SharedMetrics

_log = get_logger("relay")


def outbox_dsn(settings: Settings) -> str:
    """Return the DSN of the outbox.

    Raises:
        ConfigError: the settings do not contain it.
    """
    if settings.outbox_dsn is None:
        raise ConfigError("INGEST_OUTBOX_DSN: must be set to the PostgreSQL with the outbox")
    return settings.outbox_dsn.get_secret_value()


def run_relay(settings: Settings) -> int:
    """`ingest relay`: relay until SIGTERM or Ctrl-C, and return the exit code."""
    dsn, sources = outbox_dsn(settings), source_settings_without_secrets(settings)
    listener = listen_for_metrics(settings.metrics_host, settings.relay_metrics_port, "INGEST_RELAY_METRICS_PORT")
    if settings.durability is not Durability.MEMORY:
        run_interruptible(_check_durability(settings, sources.values()))
    return run_to_the_end(partial(_relay, settings, sources, dsn, listener))


async def _check_durability(settings: Settings, sources: Iterable[Settings]) -> None:
    """Check that Redis can confirm the configured durability, unless it is unavailable. Later each row would fail.

    Raises:
        CannotConfirm: Redis cannot confirm it.
    """
    async with producer_client(settings.redis_url.get_secret_value(), settings.durability) as client:
        for source in sources:
            async with _producing(client, source) as producer:
                try:
                    await producer.check_durability()
                except CannotConfirm:
                    raise
                except QueueUnavailable as error:
                    _log.warning("unavailable", server="redis", error=str(error))
                    return


async def _relay(settings: Settings, sources: Mapping[str, Settings], dsn: str, listener: socket.socket | None) -> None:
    shutdown = Shutdown(settings.shutdown_grace)
    stop_on_signals(shutdown.request)
    shared_metrics = SharedMetrics(RELAY_METRICS, 1, [*sources])
    metrics = RelayMetrics.on(shared_metrics)
    async with AsyncExitStack() as stack:
        stack.enter_context(watching_loop(metrics.loop_lag, settings.loop_block_warning))
        await stack.enter_async_context(tracing_of(settings, "relay"))
        if listener is not None:
            liveness = ProcessLiveness(shared_metrics, settings.heartbeat_ttl)
            await stack.enter_async_context(serving(shared_metrics, listener, "relay", liveness))
        url = settings.redis_url.get_secret_value()
        client = await stack.enter_async_context(producer_client(url, settings.durability))
        admission = ProducerAdmission(ControlRecord(client, settings.stream, settings.group))
        producers = {name: await stack.enter_async_context(_producing(client, each)) for name, each in sources.items()}
        enqueuers = {
            name: RowEnqueuer(producer, sources[name].backlog_limit, partial(admission.admit, name))
            for name, producer in producers.items()
        }
        relay = Relay(
            partial(Outbox.open, dsn, settings.outbox_table),
            SourceQueues(enqueuers),
            batch=settings.outbox_batch,
            poll_interval=settings.outbox_poll_interval,
            metrics=metrics,
        )
        _log.info("relaying", table=settings.outbox_table, queue=settings.stream, sources=[*filter(None, sources)])
        # A batch that has not ended when the stop is overdue, because a server does not respond, is abandoned.
        await unless(shutdown.overdue, relay.run(shutdown.requested))


@asynccontextmanager
async def _producing(client: Redis, settings: Settings) -> AsyncIterator[Producer]:
    """A producer of one source, with the connections of the relay."""
    producer = Producer(
        client,
        settings.stream,
        partitions=settings.partitions,
        backlog_limit=settings.backlog_limit,
        durability=settings.durability,
        replicas=settings.durability_replicas,
        idempotency_lifetime=settings.outbox_key_lifetime,
    )
    try:
        yield producer
    finally:
        await producer.close()
