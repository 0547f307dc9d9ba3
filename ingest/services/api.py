"""The composition root of `ingest api`: builds the server from the settings, and owns the order of start and stop."""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from ingest.api.admission.access import open_access
from ingest.api.admission.loopback import LoopbackAccess, is_loopback
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.api.http.admitting import Admission, OpenAccess
from ingest.api.http.connections import ConnectionLimits
from ingest.api.http.memory_budget import MemoryBudget
from ingest.api.http.requests import BodyLimits
from ingest.api.http.server import Server
from ingest.api.http.tls import checked_tls
from ingest.api.http.traced_routes import traced_routes
from ingest.domain.deliveries.accepted import Durability
from ingest.domain.errors import ConfigError, QueueUnavailable, UserError
from ingest.files.watch import watching
from ingest.flow.shutdown import Shutdown
from ingest.operations.api_keys import read_keys
from ingest.process.child import Child
from ingest.process.lifecycle import (
    OTHER_FILES,
    allow_connections,
    done_unless_stopped,
    listen,
    listen_for_metrics,
    run_to_the_end,
    serve_until_stopped,
    stop_on,
)
from ingest.process.supervisor import Supervisor
from ingest.queue.operate.service_reports import ServiceReports
from ingest.services.http.api_connections import RouteConnections, open_connections
from ingest.services.http.api_reload import ApiReload
from ingest.services.http.api_routes import ORIGINS, RouteCounters, routes_of
from ingest.services.http.console import console_of, console_secret, random_secret
from ingest.services.http.served_sources import ServedSources, identities
from ingest.services.producers import open_producer
from ingest.services.reporting import Reporting
from ingest.services.tracing import require_tracing, tracing_of
from ingest.settings import Settings
from ingest.telemetry.api_metrics import CONSOLE, ApiMetrics, ApiSeries
from ingest.telemetry.liveness import ProcessLiveness
from ingest.telemetry.logs import get_logger
from ingest.telemetry.looplag import watching_loop
from ingest.telemetry.shared_metrics import Counter
from ingest.telemetry.tracing.port import current_tracing

_log = get_logger("app")


def run_api(settings: Settings) -> int:
    """`ingest api`: run the processes of the HTTP API until SIGTERM, and return the exit code."""
    check_access(settings)
    sources = ServedSources.read(settings)
    buckets = SharedBuckets()
    secret = console_secret(settings)
    tls = checked_tls(settings.api_cert_file, settings.api_key_file)
    require_tracing(settings)
    # From here on, a requested stop waits for the supervisor.
    if not asyncio.run(done_unless_stopped(Shutdown(settings.shutdown_grace), check_durability(settings))):
        return 0
    # All processes share one socket, so that a process that has died or cannot start delays no client. Separate sockets
    # (SO_REUSEPORT) would distribute connections more evenly (of 200, four processes get 110, 56, 21 and 13 this way), but
    # connections that the system assigns to a dead process would wait for it.
    listener = listen("the HTTP API", settings.api_host, settings.api_port, "set INGEST_API_HOST or INGEST_API_PORT")
    metrics_listener = listen_for_metrics(settings.metrics_host, settings.api_metrics_port, "INGEST_API_METRICS_PORT")
    allow_connections(settings.api_connections, "INGEST_API_CONNECTIONS")

    def children_of(sources: ServedSources) -> list[Child]:
        series = series_of(settings, sources)
        children = [
            Child(
                f"api-{slot}",
                partial(_api_process, settings, sources, series, buckets, secret, slot, listener),
                on_death=series.of(slot).restarts.inc,
                listener=listener,
            )
            for slot in range(settings.api_processes)
        ]
        if metrics_listener is not None:
            serve = partial(_metrics_process, settings, series, metrics_listener)
            children.append(Child("metrics", serve, listener=metrics_listener))
        return children

    reload = None
    if identities(settings, sources.settings.values()):
        reload = ApiReload(settings, sources, lambda changed: supervisor.replace(children_of(changed)))
    supervisor = Supervisor(children_of(sources), settings.shutdown_grace, reload=reload)
    host, port = listener.getsockname()[:2]
    _log.info("listening", url=f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}")
    return supervisor.run()


def check_access(settings: Settings) -> None:
    """Check that the API is not open to a network by mistake.

    Raises:
        ConfigError: the API would be open, or the API keys cannot be read.
    """
    if settings.api_keys_file is not None:
        read_keys(Path(settings.api_keys_file))
        return
    if not is_loopback(settings.api_host) and settings.api_open != "on":
        raise ConfigError(
            f"INGEST_API_HOST: {settings.api_host} is not a loopback address, and there are no API keys: set "
            "INGEST_API_KEYS_FILE (`ingest api-key create` makes keys), or INGEST_API_OPEN=on for an API that is open to everyone"
        )
    _log.warning(
        "api_open", problem="there are no API keys: everyone who can connect may do everything", host=settings.api_host
    )


async def check_durability(settings: Settings) -> None:
    """Check that Redis can confirm the configured durability. If Redis is unavailable, the processes check it later.

    Raises:
        CannotConfirm: Redis cannot confirm it.
    """
    if settings.durability is Durability.MEMORY:
        return
    async with open_producer(settings) as producer:
        try:
            await producer.check_durability()
        except QueueUnavailable as error:
            if isinstance(error, UserError):
                raise
            _log.warning("unavailable", server="redis", error=str(error))


def series_of(settings: Settings, sources: ServedSources) -> ApiSeries:
    """Create the metrics of all processes."""
    names = [*sources.settings]
    described = routes_of(settings, sources, RouteConnections.none(names), RouteCounters.none(names))
    named = [*((route.path, route.method) for route in described), *((CONSOLE, method) for method in ("GET", "POST"))]
    webhooks = {webhook.name: name for name, each in sources.webhooks.items() for webhook in each}
    return ApiSeries(named, ORIGINS, settings.api_processes, webhooks, names)


@asynccontextmanager
async def open_admission(
    settings: Settings, buckets: SharedBuckets, denied: Mapping[str, Counter]
) -> AsyncIterator[Admission]:
    """Open the admission by API keys, or by address if the settings name no keys."""
    if settings.api_keys_file is None:
        # With INGEST_API_OPEN=on, the names of the host are unknown.
        yield LoopbackAccess() if is_loopback(settings.api_host) else OpenAccess()
        return
    async with open_access(Path(settings.api_keys_file), buckets, denied) as access:
        yield access


@asynccontextmanager
async def serving_api(
    settings: Settings,
    sources: ServedSources,
    metrics: ApiMetrics,
    listener: socket.socket,
    shutdown: Shutdown,
    access: Admission | None = None,
    secret: bytes | None = None,
) -> AsyncIterator[None]:
    """Serve the HTTP API while the block runs, then finish the requests in progress until the shutdown is overdue.

    Args:
        settings: settings of the API.
        sources: the sources, with their webhooks.
        metrics: metrics of this process.
        listener: socket to accept from. It is closed at the end.
        shutdown: responses close their connections when it is requested.
        access: admits callers. The default admits everyone.
        secret: signs the sessions of the console. The default is valid for this process only.
    """
    access = access or OpenAccess()
    memory = MemoryBudget(max(settings.api_body_memory, 2 * settings.api_body_limit), metrics.bodies_rejected)
    tls = checked_tls(settings.api_cert_file, settings.api_key_file)
    files = [webhook.secrets.watched(webhook.name) for each in sources.webhooks.values() for webhook in each]
    if tls is not None:
        files.append(tls.watched())
    name = f"{socket.gethostname()}-{os.getpid()}"
    async with open_connections(settings, sources.settings) as connections, watching(files), AsyncExitStack() as stack:
        reports = ServiceReports(connections.redis, settings.stream, settings.group)
        reporting = Reporting(reports, "ingest api", name, sources.rejected)
        counters = RouteCounters(metrics.accepted, metrics.webhooks, reporting.webhooks)
        described = routes_of(settings, sources, connections, counters)
        routes = traced_routes(described, current_tracing())
        if settings.console == "on":
            console = console_of(settings, sources, connections, access, secret or random_secret())
            bodies = BodyLimits(settings.api_body_limit, settings.api_body_timeout)
            routes += console.routes(bodies, shutdown.requested.is_set)
            await stack.enter_async_context(console.parts.history.noting())
        limits = ConnectionLimits(_connections(settings), settings.api_idle_timeout, settings.api_header_timeout)
        server = Server(routes, access, metrics, memory, shutdown.requested.is_set, limits)
        listening = server.listening(listener, tls.context if tls is not None else None, shutdown.overdue)
        async with listening, reporting.running():
            yield


def _connections(settings: Settings) -> int:
    """Return the maximum number of connections of a process, which is limited by its open files."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return settings.api_connections if files < 0 else max(1, min(settings.api_connections, files - OTHER_FILES))


def _api_process(
    settings: Settings,
    sources: ServedSources,
    series: ApiSeries,
    buckets: SharedBuckets,
    secret: bytes,
    slot: int,
    listener: socket.socket,
    lifeline: int,
) -> int:
    async def main() -> None:
        shutdown = Shutdown(settings.shutdown_grace)
        stop_on(lifeline, shutdown.request)
        metrics = series.of(slot)
        with watching_loop(metrics.loop_lag, settings.loop_block_warning):
            async with (
                tracing_of(settings, "api"),
                open_admission(settings, buckets, metrics.denied) as access,
                serving_api(settings, sources, metrics, listener, shutdown, access, secret),
            ):
                await shutdown.requested.wait()

    return run_to_the_end(main)


def _metrics_process(settings: Settings, series: ApiSeries, listener: socket.socket, lifeline: int) -> int:
    from ingest.probes.metrics_page import serving  # noqa: PLC0415  only this process uses it

    liveness = ProcessLiveness(series.shared_metrics, settings.heartbeat_ttl)
    return serve_until_stopped(serving(series.shared_metrics, listener, "api", liveness), lifeline)
