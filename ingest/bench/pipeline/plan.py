"""Describes the options of a run."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from ingest.domain.errors import ConfigError
from ingest.lab.described import described
from ingest.lab.servers.server import free_port
from ingest.lab.upstream.latency import Latency

SERVICE = "service"
BARE = "bare"
GO = "go"
GO_JSON = "go-json"
RIVALS = (BARE, GO, GO_JSON)
"""The alternatives that the service is compared with."""

Kill = Literal["worker", "command"]

_LOAD = "Load"
_CONTENDERS = "Contenders"
_FAULTS = "Faults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run, the same for every contender.

    The fields are options of `ingest bench pipeline`. `kill_at` kills a process with SIGKILL, and orders arrive at `rate` as a Poisson process.
    None stands for the default of a setting.
    """

    orders: Annotated[int, described(_LOAD, "Orders to enqueue.", ge=1, le=9_999_999)] = 10_000
    latency: Annotated[str, described(_LOAD, "Of the external API, as `ingest upstream` takes it.")] = "0.1-0.2"
    order_bytes: Annotated[
        int,
        described(
            _LOAD,
            "Approximate length of the documents after the first 10,000, which are real orders with a mean of 2 KB. 0 for any length.",
            ge=0,
        ),
    ] = 1_000
    tls: Annotated[bool, described(_LOAD, "The external API over HTTPS.")] = False
    rate: Annotated[
        float,
        described(_LOAD, "Orders per second, arriving at random. 0 enqueues all of them before the start.", ge=0),
    ] = 0.0
    in_flight: Annotated[int, described(_CONTENDERS, "Orders in flight, over all processes.", ge=1, le=10_000)] = 500
    processes: Annotated[int, described(_CONTENDERS, "Worker processes of the service.", ge=1, le=64)] = 2
    client: Annotated[
        Literal["native", "aiohttp"] | None,
        described(_CONTENDERS, "INGEST_UPSTREAM_CLIENT of the service.", show_default=False),
    ] = None
    batch_rows: Annotated[
        Annotated[int, Meta(ge=1, le=5_000)] | None,
        described(_CONTENDERS, "INGEST_BATCH_ROWS of the service.", show_default=False),
    ] = None
    bulk: Annotated[
        int,
        described(_CONTENDERS, "Orders in one request of the service. 0 for one request each.", ge=0, le=250),
    ] = 0
    metrics: Annotated[
        bool, described(_CONTENDERS, "Let the service serve /metrics, its default, with one more process.")
    ] = False
    traces_to: Annotated[
        str | None, described(_CONTENDERS, "An OTLP receiver to which the service sends traces.", metavar="URL")
    ] = None
    traced: Annotated[float, described(_CONTENDERS, "Share of the orders that are traced.", ge=0, le=1)] = 0.01
    history: Annotated[bool, described(_CONTENDERS, "Keep the history of orders.", names=("--history",))] = False
    kill_at: Annotated[
        float | None,
        described(_FAULTS, "Kill a worker when this share of the orders is stored.", metavar="SHARE"),
    ] = None
    kill: Annotated[
        Kill,
        described(_FAULTS, "One worker process, which is restarted, or one of two whole commands, which is not."),
    ] = "worker"
    api_limit: Annotated[
        int, described(_FAULTS, "Concurrent requests above which the API responds with 429. 0 for no limit.", ge=0)
    ] = 0
    api_retry_after: Annotated[int, described(_FAULTS, "Seconds to wait that a 429 demands.", ge=0)] = 1
    seed: Annotated[int, described(_LOAD, "Seed of arrivals and latencies.", ge=0)] = 1

    def __post_init__(self) -> None:
        """Check options that depend on each other.

        Raises:
            ConfigError: options contradict each other.
        """
        try:
            Latency.parse(self.latency)
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
        ideal = Latency.parse(self.latency).mean * max(1.0, self.orders / slots)
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
