"""The composition root: builds the parts from the settings, and owns the order of start and stop."""

import asyncio
import os
import resource
import secrets
import signal
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

import uvloop

from ingest.assembly import decode_of, open_worker
from ingest.domain.errors import UserError
from ingest.endpoint import check_endpoint
from ingest.flow.availability import until_ready
from ingest.flow.reader import BLOCK
from ingest.flow.shutdown import Shutdown
from ingest.mapping.process_pool import check_function
from ingest.queue.connection import control_client
from ingest.queue.consumer import Consumer
from ingest.queue.monitor import Monitor
from ingest.settings import Settings
from ingest.store.schema import check_schema, migrations
from ingest.supervisor import Child, Supervisor
from ingest.telemetry.logs import get_logger
from ingest.telemetry.looplag import watching_loop
from ingest.telemetry.metrics import IN_FLIGHT, WorkerMetrics, worker_shared_metrics
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.client import require

_T = TypeVar("_T")
_log = get_logger("app")
# Beside the connections to the external API: servers, logs, pipes.
_OTHER_FILES = 128


class AddressTaken(UserError):
    """A port to listen on is in use."""


def run_worker(settings: Settings) -> int:
    """`ingest worker`: check the servers, then run the worker processes until SIGTERM; returns the exit code."""
    # Whatever is wrong with these is said now, by one line, and not by each process.
    require(settings.upstream_client)
    check_endpoint(settings, os.environ)
    decode_of(settings)
    if settings.transform is not None:
        # In a process of its own: what the function's module starts, such as threads, would not survive the forks.
        asyncio.run(check_function(settings.transform, settings.transform_memory))
    listener = _listen(settings.metrics_host, settings.metrics_port) if settings.metrics_port else None
    if not asyncio.run(_prepare_unless_stopped(settings)):
        return 0
    _allow_connections(settings.concurrency)
    shared_metrics = worker_shared_metrics(settings.processes)
    # A name that no other command has, and that a restarted process of this one keeps: what is pending under it is its.
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    children = [
        Child(
            f"worker-{slot}",
            partial(_worker_process, settings, shared_metrics, slot, f"{identity}-{slot}"),
            on_death=partial(note_death, shared_metrics, slot),
        )
        for slot in range(settings.processes)
    ]
    if listener is not None:
        children.append(Child("metrics", partial(_metrics_process, settings, shared_metrics, listener)))
    code = Supervisor(children, settings.shutdown_grace).run()
    # A process that stops by itself reports its own; one that had to be killed has left its gauge as it was.
    if orphans := int(shared_metrics.total(IN_FLIGHT.name, 0)[0]):
        _log.error("orphans", entries=orphans)
    return code


async def prepare(settings: Settings) -> None:
    """Wait until Redis and PostgreSQL answer, and see that both are ready for the workers.

    Raises:
        UserError: if one refuses us, or the schema is not this release's.
    """
    await until_ready("postgres", check_schema, settings.postgres_dsn.get_secret_value(), migrations())

    async def make_group() -> bool:
        url = settings.redis_url.get_secret_value()
        async with Consumer.open(url, settings.stream, settings.group, "prepare", BLOCK) as consumer:
            return await consumer.ensure_group()

    await until_ready("redis", make_group)
    async with control_client(settings.redis_url.get_secret_value()) as client:
        for trap in await until_ready("redis", Monitor(client, settings.stream, settings.group).traps):
            _log.warning("redis_configuration", problem=trap)


def _worker_process(settings: Settings, shared_metrics: SharedMetrics, slot: int, name: str, lifeline: int) -> int:
    async def main() -> None:
        shutdown = Shutdown(settings.shutdown_grace)
        stop_on(lifeline, shutdown.request)
        metrics = WorkerMetrics.on(shared_metrics, slot)
        # From the start: the loop's turns also say that this process lives while it waits for a server.
        with watching_loop(metrics.loop_lag, settings.loop_block_warning):
            async with AsyncExitStack() as stack:
                opening = stack.enter_async_context(open_worker(settings, metrics, name))
                worker = await _unless(shutdown.requested, opening)
                if worker is not None:
                    await worker.run(shutdown)

    async def to_the_end() -> None:
        try:
            await main()
        finally:
            _ignore_further_stops()

    code = 0
    try:
        uvloop.run(to_the_end())
    except* UserError as refused:
        _log.error("refused", problem="; ".join(str(error) for error in refused.exceptions))
        code = 1
    return code


def _metrics_process(settings: Settings, shared_metrics: SharedMetrics, listener: socket.socket, lifeline: int) -> int:
    # The workers, which share the parent's memory, need no HTTP server.
    from ingest.exposition import serving  # noqa: PLC0415

    async def main() -> None:
        stopped = asyncio.Event()
        stop_on(lifeline, lambda _: stopped.set())
        async with serving(settings, shared_metrics, listener):
            await stopped.wait()
        _ignore_further_stops()

    uvloop.run(main())
    return 0


def note_death(shared_metrics: SharedMetrics, slot: int) -> None:
    """A worker process has died: clear its gauges, and count its restart."""
    shared_metrics.clear_gauges(slot)
    WorkerMetrics.on(shared_metrics, slot).restarts.inc()


def _allow_connections(concurrency: int) -> None:
    """Raise the soft limit of open files, which the children inherit: an order in flight has a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = concurrency + _OTHER_FILES
    if hard != unlimited and hard < wanted:
        _log.warning("few_open_files", allowed=hard, wanted=wanted, setting="INGEST_CONCURRENCY")
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == unlimited else min(wanted, hard), hard))


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), reuse_port=False)
    except OSError as error:
        raise AddressTaken(
            f"/metrics cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; set INGEST_METRICS_PORT (0: none)"
        ) from error


def stop_on(lifeline: int, request: Callable[[str], None]) -> None:
    """Ask for a stop at SIGTERM, and when the parent at the other end of the lifeline is gone."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, request, "SIGTERM")
    # Blocked since before the fork, see the supervisor.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def parent_gone() -> None:
        loop.remove_reader(lifeline)
        request("the supervisor is gone")

    loop.add_reader(lifeline, parent_gone)


def _ignore_further_stops() -> None:
    """Block SIGTERM: the loop removes its handler as it closes, and a later signal would decide the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """The work's result, or None if `stop` comes first: the work is then cancelled."""
    working = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        stopped.cancel()
        working.cancel()
        await asyncio.wait([working])


async def _prepare_unless_stopped(settings: Settings) -> bool:
    """`prepare`; False if SIGTERM or Ctrl-C came while it waited."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await _unless(stopped, prepare(settings))
    # From here until the supervisor's own handlers are in place, a signal waits. What has been caught before is still
    # on its way through the loop: one turn to receive it, one to act on it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return not stopped.is_set()
