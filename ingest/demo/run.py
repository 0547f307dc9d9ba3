"""Runs the demo with the real commands on real servers, from the first server to the report.

    servers ──▶ API, tables, IDs ──▶ workers ──▶ (sample until the queue is empty) ──▶ workers stop ──▶ check

Everything runs in `with` blocks and under watchdogs, so that all of it is removed however this process ends.
"""

import asyncio
import time
from contextlib import ExitStack, closing
from dataclasses import replace

import asyncpg
import redis

from ingest.demo.moment import Moment, Moments
from ingest.demo.plan import SECOND_HALF, Plan
from ingest.demo.report import Kept, Report
from ingest.demo.result import check, is_drained
from ingest.demo.view import View, view_of
from ingest.domain.errors import Unavailable
from ingest.lab.commands import Command, Commands
from ingest.lab.endpoints import ApiControl, WorkerMetrics
from ingest.lab.errors import LabFailed
from ingest.lab.http_api import post_orders, wait_until_served
from ingest.lab.servers import EmbeddedServers, embedded_servers
from ingest.lab.servers.server import free_port
from ingest.lab.session import allow_open_files, orderly_exit
from ingest.lab.upstream.samples import sample_orders
from ingest.lab.usage import PeakMemory
from ingest.operations.reconcile import Backends

# Each sample costs the workers some CPU time. Four per second look smooth.
_SAMPLE_EVERY = 0.25
_STALLED_AFTER = 60.0
_STOP_SECONDS = 45.0  # beyond the grace period of the workers
_OTHER_FILES = 512
_SERVER_ERRORS = (redis.RedisError, asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError, Unavailable)


def run(plan: Plan, *, keep: bool) -> Report:
    """Run the demo and return its report. `keep` leaves the servers and the API running.

    Raises:
        LabFailed: a process did not start, or ended unexpectedly.
    """
    # The API needs a connection for each order in flight.
    allow_open_files(plan.in_flight + _OTHER_FILES)
    view = view_of(plan)
    view.step("starting PostgreSQL and Valkey ...")
    try:
        with orderly_exit() as stack:
            servers = stack.enter_context(embedded_servers(durable=True))
            commands = stack.enter_context(Commands(servers.directory / "demo"))
            demo = _Demo(plan, view, servers, commands)
            api_url = demo.prepare()
            report = demo.run(api_url)
            if not keep:
                return report
            stop_command = f"kill {demo.api.pid}; {servers.stop_command}"
            demo.api.release()
            servers.detach()
            # For a URL without a user name, redis-cli sends an empty one, which Redis rejects.
            redis_url = servers.redis_url.replace("//:", "//default:", 1)
            return replace(report, kept=Kept(redis_url, servers.postgres_dsn, api_url, stop_command))
    except _SERVER_ERRORS as error:
        raise LabFailed(f"a server of the demo became unavailable: {error}") from error


class _Demo:
    """The parts of one run.

    Attributes:
        api: the simulated external API, once prepared.
    """

    api: Command

    def __init__(self, plan: Plan, view: View, servers: EmbeddedServers, commands: Commands) -> None:
        self._plan = plan
        self._view = view
        self._servers = servers
        self._commands = commands
        self._documents = sample_orders()
        self._ids = plan.order_ids(self._documents)

    def prepare(self) -> str:
        """Start the API, create the tables and announce the orders concurrently. Return the API's URL."""
        commands, port = self._commands, free_port()
        noun = "order" if self._plan.orders == 1 else "orders"
        self._view.step(f"starting the simulated external API, enqueueing {self._plan.orders:,} {noun} ...")
        commands.configure(
            {
                "INGEST_REDIS_URL": self._servers.redis_url,
                "INGEST_POSTGRES_DSN": self._servers.postgres_dsn,
                "INGEST_API_PORT": str(port),
                "INGEST_API_METRICS_PORT": "0",
            }
        )
        self.api = commands.start("upstream", "--port", "0", *self._plan.api_options(self._documents))
        migrate = commands.start("migrate")
        # One half is enqueued by the command line, the other half by HTTP.
        middle = len(self._ids) // 2
        ids = commands.home / "ids.txt"
        ids.write_text("".join(f"{order_id}\n" for order_id in self._ids[:middle]))
        http_api = commands.start("api")
        enqueue = commands.start("enqueue", "--quiet", "--file", ids.name)
        wait_until_served([http_api], port)
        post_orders(port, self._ids[middle:])
        for command in (migrate, enqueue):
            command.finish()
        if http_api.stop(_STOP_SECONDS) != 0:
            raise http_api.failed("did not stop after SIGTERM")
        url = self.api.first_url()
        commands.configure({"INGEST_UPSTREAM_URL": url})
        return url

    def run(self, api_url: str) -> Report:
        """Start workers, wait until the queue is empty, and check every order."""
        plan, port = self._plan, free_port()
        self._view.step(f"starting workers: {plan.processes} x {plan.concurrency} orders in flight ...")
        options = {"processes": plan.processes, "concurrency": plan.concurrency, "metrics-port": port}
        workers = self._commands.start("worker", *(f"--{name}={value}" for name, value in options.items()))
        with ExitStack() as stack:
            queue = stack.enter_context(closing(redis.Redis.from_url(self._servers.redis_url)))
            api = stack.enter_context(closing(ApiControl(api_url)))
            metrics = stack.enter_context(closing(WorkerMetrics(f"http://127.0.0.1:{port}")))
            with PeakMemory([workers.pid], _SAMPLE_EVERY) as memory:
                last = _Observer(workers, memory, metrics, api).until_drained(plan, queue, self._view)
            self._view.step("checking every row ...")
            exit_code = workers.stop(_STOP_SECONDS)
            # The user's PG… variables must not apply, because this server does not support TLS.
            backends = Backends(self._servers.redis_url, f"{self._servers.postgres_dsn}?sslmode=disable")
            result = asyncio.run(check(backends, queue, self._ids, self._compared()))
        return Report(plan, result, last.api, last.metrics, memory.peak, exit_code)

    def _compared(self) -> dict[str, bytes]:
        return {order_id: self._documents[order_id] for order_id in self._ids[: len(self._documents)]}


class _Observer:
    """Samples the workers while they run."""

    def __init__(self, workers: Command, memory: PeakMemory, metrics: WorkerMetrics, api: ApiControl) -> None:
        self._workers = workers
        self._metrics = metrics
        self._api = api
        self._moments = Moments(memory)

    def until_drained(self, plan: Plan, queue: redis.Redis, view: View) -> Moment:
        """Show the progress until the queue is empty or has made no progress for a minute. Return the last moment."""
        progress, moved_at, is_first_half = 0, time.monotonic(), True
        with view:
            while True:
                moment = self._sample()
                if moment is not None:
                    view.show(moment)
                    if is_first_half and moment.stored * 2 >= plan.orders:
                        is_first_half = False
                        self._api.behave(**SECOND_HALF)
                    if moment.is_idle and is_drained(queue):
                        # Sample again, because the last settlements may not have been counted yet.
                        return self._sample() or moment
                    if moment.api.requests > progress:
                        progress, moved_at = moment.api.requests, time.monotonic()
                    elif time.monotonic() - moved_at > _STALLED_AFTER:
                        return moment
                elif time.monotonic() - moved_at > _STALLED_AFTER:
                    raise self._workers.failed("does not respond on /metrics")
                if self._workers.has_ended(within=_SAMPLE_EVERY):
                    raise self._workers.failed("ended unexpectedly")

    def _sample(self) -> Moment | None:
        """The current moment, or None while the workers or the API do not respond."""
        metrics, api = self._metrics.scrape(), self._api.stats()
        return None if metrics is None or api is None else self._moments.next(metrics, api)
