"""Describes the options of a run."""

from dataclasses import dataclass
from typing import Any, Literal

from ingest.bench.pipeline.latency import check_latency, mean_of
from ingest.domain.errors import ConfigError
from ingest.lab.servers.server import free_port

SERVICE = "service"
BARE = "bare"
GO = "go"
GO_JSON = "go-json"
RIVALS = (BARE, GO, GO_JSON)
"""The alternatives that the service is compared with."""

Kill = Literal["worker", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run, the same for every contender.

    Attributes:
        orders: number of different orders to enqueue.
        latency: latency of the external API in the format of `ingest upstream`.
        order_bytes: approximate length of the documents of orders that are not bundled, or 0 for the bundled lengths.
        in_flight: maximum number of orders in flight in all processes.
        processes: worker processes of the service.
        rate: arriving orders per second as a Poisson process, or 0 for all orders immediately.
        kill_at: share of stored orders at which a process is killed with SIGKILL, or None for never.
        kill: one worker process, which its supervisor replaces, or one of two `ingest worker` commands.
        client: INGEST_UPSTREAM_CLIENT, or None for the default.
        batch_rows: INGEST_BATCH_ROWS, or None for the default.
        bulk: orders in one request of the service to the list endpoint, or 0 for a request for each order.
        api_limit: concurrent requests above which the external API responds with 429, or 0 for no limit.
        api_retry_after: the seconds in Retry-After of such a response.
        tls: whether the external API serves HTTPS.
        metrics: whether the service serves /metrics, as by default.
        traces_to: INGEST_OTLP_ENDPOINT, or None for no traces.
        traced: INGEST_OTLP_SAMPLING, the share of the orders that are traced.
        history: whether the service keeps the history of orders.
        seed: seed of the arrivals and of the latencies.
    """

    orders: int = 10_000
    latency: str = "0.1-0.2"
    order_bytes: int = 1_000
    in_flight: int = 500
    processes: int = 2
    rate: float = 0.0
    kill_at: float | None = None
    kill: Kill = "worker"
    client: str | None = None
    batch_rows: int | None = None
    bulk: int = 0
    api_limit: int = 0
    api_retry_after: int = 1
    tls: bool = False
    metrics: bool = False
    traces_to: str | None = None
    traced: float = 0.01
    history: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        """Check options that depend on each other.

        Raises:
            ConfigError: options contradict each other.
        """
        try:
            check_latency(self.latency)
        except ValueError as error:
            raise ConfigError(f"--latency: {error}") from error
        if self.in_flight < self.processes:
            raise ConfigError(f"--in-flight {self.in_flight} is less than one for each of {self.processes} processes")
        if self.kill == "command" and self.processes % 2:
            raise ConfigError("--kill command needs an even number of --processes, half of them in each command")
        if self.metrics and self.commands > 1:
            raise ConfigError(
                "--metrics cannot be used with --kill command, because two commands cannot share its port"
            )

    @property
    def commands(self) -> int:
        """The number of concurrent `ingest worker` commands."""
        return 2 if self.kill_at is not None and self.kill == "command" else 1

    @property
    def concurrency(self) -> int:
        """Orders in flight in each process of the service."""
        return round(self.in_flight / self.processes)

    @property
    def ideal(self) -> float | None:
        """Seconds if every slot fetched without a pause, or None if that is not meaningful."""
        slots = min(self.in_flight, self.api_limit or self.in_flight)
        ideal = mean_of(self.latency) * max(1.0, self.orders / slots)
        return ideal if ideal > 0 and not self.rate else None

    def api_options(self) -> list[str]:
        """The options of `ingest upstream`."""
        options = [
            f"--latency={self.latency}",
            f"--concurrency-limit={self.api_limit}",
            f"--retry-after={self.api_retry_after}",
            f"--seed={self.seed}",
        ]
        return [*options, f"--any-bytes={self.order_bytes}"] if self.order_bytes else options

    def worker_settings(self) -> dict[str, Any]:
        """The settings of `ingest worker`, with None for a default."""
        return {
            "INGEST_PROCESSES": self.processes // self.commands,
            "INGEST_CONCURRENCY": self.concurrency,
            "INGEST_BATCH_ROWS": self.batch_rows,
            "INGEST_UPSTREAM_CLIENT": self.client,
            "INGEST_METRICS_PORT": free_port() if self.metrics else None,
            "INGEST_OTLP_ENDPOINT": self.traces_to,
            "INGEST_OTLP_SAMPLING": self.traced if self.traces_to else None,
            "INGEST_HISTORY": "1d" if self.history else None,
        }
