"""Settings of the queue and of the worker processes, a part of `Settings`."""

from typing import Annotated

from pydantic import Field

from ingest.settings.types import (
    LONGEST,
    Concurrency,
    Duration,
    Keeping,
    KeyPart,
    NotEmpty,
    NotNegative,
    Partitions,
    Positive,
    Seconds,
    Topic,
)


class WorkerSettings(Topic):
    """The queue, and its processing by workers."""

    sources: NotEmpty | None = Field(
        None, description="TOML file of the sources, for several shops (default: one source, described by the settings)"
    )
    stream: KeyPart = Field("orders", description="Name of the queue")
    partitions: Partitions = Field(
        1, description="Partitions of a queue that was never divided. Later, `ingest partitions set` changes them"
    )
    group: KeyPart = Field("ingest", description="Name of the consumer group")
    processes: Annotated[int, Field(gt=0, le=256)] = Field(2, description="Worker processes of one `ingest worker`")
    concurrency: Concurrency = Field(100, description="Orders in flight, in each process")
    heartbeat_ttl: Annotated[Duration, Field(ge=0.5, le=LONGEST)] = Field(
        6.0,
        description="Time without a heartbeat after which a worker process counts as dead and others reclaim its entries",
    )
    stuck_after: Annotated[Duration, Field(ge=0, le=LONGEST)] = Field(
        120.0,
        description="Time without completed work, in addition to the longest request and transform call, after which a worker process is unhealthy (0: never)",
    )
    claim_idle: Annotated[Duration, Field(ge=1, le=LONGEST)] = Field(
        30.0, description="Lease: time without renewal after which the entry of a live worker is redelivered"
    )
    max_attempts: Positive = Field(10, description="Failed attempts after which an order is dead-lettered")
    # With 1, entries in flight together with a poison message would also be dead-lettered.
    max_deliveries: Annotated[int, Field(ge=2)] = Field(
        10, description="Deliveries after which an entry counts as a poison message"
    )
    batch_rows: Annotated[int, Field(gt=0, le=5_000)] = Field(
        500, description="Maximum number of rows in one transaction"
    )
    batch_bytes: Positive = Field(
        64 * 1024 * 1024, description="Maximum size of the documents between fetch and commit in each process, in bytes"
    )
    history: Keeping = Field(
        0.0,
        description="How long the history of each order is kept in PostgreSQL, such as 30d (0 or off: none is kept)",
    )
    shutdown_grace: Seconds = Field(25.0, description="Time to finish orders in flight after SIGTERM")
    backlog_limit: NotNegative = Field(0, description="Backlog above which producers wait (0: no limit)")
