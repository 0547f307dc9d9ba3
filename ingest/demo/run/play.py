"""The demo from its first server to its report, with the real commands on real servers.

    servers ──▶ API, tables, IDs ──▶ workers ──▶ (look until the queue is empty) ──▶ workers stop ──▶ audit

Everything stands in `with` blocks and under watchdogs: whatever ends this process, nothing of it stays behind.
"""

from __future__ import annotations

import resource
import signal
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import asyncpg
import redis

from ingest.demo.run.audit import audit, is_drained
from ingest.demo.run.commands import Commands
from ingest.demo.run.errors import DemoFailed
from ingest.demo.run.gauges import ApiGauges, WorkerGauges
from ingest.demo.run.memory import Memory
from ingest.demo.run.moment import Track
from ingest.demo.run.plan import SECOND_HALF
from ingest.demo.run.report import Kept, Report
from ingest.demo.run.view import view_of
from ingest.lab.servers import ServerError, embedded_servers, sigterm_raises
from ingest.lab.servers.server import free_port
from ingest.lab.upstream.samples import sample_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ingest.demo.run.commands import Command
    from ingest.demo.run.moment import Moment
    from ingest.demo.run.plan import Plan
    from ingest.demo.run.view import View
    from ingest.lab.servers import EmbeddedServers

# Each look costs the workers a little: four a second are smooth enough.
_LOOK_EVERY = 0.25
_STALLED_AFTER = 60.0
_STOP_SECONDS = 45.0  # beyond the grace period of the workers
_OTHER_FILES = 512


def play(plan: Plan, *, keep: bool) -> Report:
    """Play the demo and return its report; `keep` leaves servers and API running.

    Raises:
        DemoFailed: a part of it did not start, or died.
    """
    _allow_connections(plan.in_flight)
    view = view_of(plan)
    view.step("starting PostgreSQL and Valkey ...")
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        stack.enter_context(sigterm_raises())
        servers = stack.enter_context(_servers())
        commands = stack.enter_context(Commands(servers.directory / "demo"))
        stack.callback(_ignore_signals)
        stage = _Stage(plan, view, servers, commands)
        api_url = stage.prepare()
        report = stage.run(api_url)
        if not keep:
            return report
        stop_command = f"kill {stage.api.pid}; {servers.stop_command}"
        stage.api.release()
        servers.detach()
        return replace(report, kept=Kept(servers.redis_url, servers.postgres_dsn, api_url, stop_command))


class _Stage:
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
        """Start the API, make the tables, enqueue the orders, all at the same time; return the API's URL."""
        commands = self._commands
        self._view.step(f"starting the simulated external API, enqueueing {self._plan.orders:,} orders ...")
        commands.configure(
            {"INGEST_REDIS_URL": self._servers.redis_url, "INGEST_POSTGRES_DSN": self._servers.postgres_dsn}
        )
        self.api = commands.start("upstream", "--port", "0", *self._plan.api_options(self._documents))
        migrate = commands.start("migrate")
        ids = commands.home / "ids.txt"
        ids.write_text("".join(f"{order_id}\n" for order_id in self._ids))
        enqueue = commands.start("enqueue", "--quiet", "--file", ids.name)
        for command in (migrate, enqueue):
            command.finish()
        url = self.api.first_url()
        commands.configure({"INGEST_UPSTREAM_URL": url})
        return url

    def run(self, api_url: str) -> Report:
        """Let workers do it all, and find out what they did."""
        plan, port = self._plan, free_port()
        self._view.step(f"starting workers: {plan.processes} x {plan.concurrency} orders in flight ...")
        options = {"processes": plan.processes, "concurrency": plan.concurrency, "metrics-port": port}
        workers = self._commands.start("worker", *(f"--{name}={value}" for name, value in options.items()))
        memory = Memory(workers.pid, expected=plan.processes + 2)
        with ExitStack() as stack:
            queue = stack.enter_context(closing(redis.Redis.from_url(self._servers.redis_url)))
            api = stack.enter_context(closing(ApiGauges(api_url)))
            gauges = stack.enter_context(closing(WorkerGauges(f"http://127.0.0.1:{port}")))
            last = _Watch(workers, memory, gauges, api).until_drained(plan, queue, self._view)
            self._view.step("checking every row ...")
            exit_code = workers.stop(_STOP_SECONDS)
            findings = audit(self._servers.postgres_dsn, queue, self._ids, self._compared())
        return Report(plan, findings, last.api, last.metrics, memory.peak, memory.measure, exit_code)

    def _compared(self) -> dict[str, bytes]:
        return {order_id: self._documents[order_id] for order_id in self._ids[: len(self._documents)]}


class _Watch:
    """Looks at the workers at work."""

    def __init__(self, workers: Command, memory: Memory, gauges: WorkerGauges, api: ApiGauges) -> None:
        self._workers = workers
        self._memory = memory
        self._gauges = gauges
        self._api = api
        self._track = Track(memory)

    def until_drained(self, plan: Plan, queue: redis.Redis, view: View) -> Moment:
        """Show how it goes on until nothing is queued, or nothing has moved for a minute; the last moment."""
        progress, moved_at, is_first_half = 0, time.monotonic(), True
        with view:
            while True:
                moment = self._look()
                if moment is not None:
                    view.show(moment)
                    if is_first_half and moment.stored * 2 >= plan.orders:
                        is_first_half = False
                        self._api.behave(SECOND_HALF)
                    if moment.is_idle and is_drained(queue):
                        # Looked at again: what was settled last may not have been counted yet.
                        return self._look() or moment
                    if moment.api.requests > progress:
                        progress, moved_at = moment.api.requests, time.monotonic()
                    elif time.monotonic() - moved_at > _STALLED_AFTER:
                        return moment
                elif time.monotonic() - moved_at > _STALLED_AFTER:
                    raise self._workers.failed("does not answer on /metrics")
                if self._workers.has_ended(within=_LOOK_EVERY):
                    raise self._workers.failed("ended by itself")

    def _look(self) -> Moment | None:
        """The moment now; None while the workers, or the API, do not answer."""
        self._memory.sample()
        metrics, api = self._gauges.scrape(), self._api.stats()
        return None if metrics is None or api is None else self._track.moment(metrics, api)


@contextmanager
def _servers() -> Iterator[EmbeddedServers]:
    """The embedded servers; what goes wrong with them is one line, not a traceback."""
    try:
        with embedded_servers(durable=True) as servers:
            yield servers
    except ServerError as error:
        raise DemoFailed(str(error)) from error
    except (redis.RedisError, asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError) as error:
        raise DemoFailed(f"a server of the demo went away: {error}") from error


def _ignore_signals() -> None:
    """Take everything down undisturbed: it takes a moment, and whoever is impatient would make it longer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _allow_connections(in_flight: int) -> None:
    """Raise the soft limit of open files, which children inherit: the API has a connection for each order in flight."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = in_flight + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
