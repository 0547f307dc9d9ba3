"""The settings of `ingest api` and `ingest relay`, a part of `Settings`."""

from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from ingest.domain.deliveries.accepted import Durability
from ingest.settings.types import (
    Coalesce,
    Duration,
    Networks,
    NotEmpty,
    OnOff,
    Port,
    Scopes,
    SigningSecret,
    Topic,
    lower,
)

_Seconds = Annotated[Duration, Field(gt=0, le=86_400)]


class ApiSettings(Topic):
    """Settings of the HTTP API and the relay."""

    # -- the server of `ingest api` -----------------------------------------------------------------------------------
    api_host: NotEmpty = Field("127.0.0.1", description="Address on which the HTTP API listens")
    api_port: Port = Field(8080, description="Port of the HTTP API (0: any free port, shown in the log)")
    api_processes: Annotated[int, Field(gt=0, le=256)] = Field(1, description="Processes of one `ingest api`")
    api_keys_file: NotEmpty | None = Field(None, description="File of the API keys, reloaded when it changes")
    api_open: OnOff = Field("off", description="on: listen on other addresses than the loopback even without API keys")
    api_cert_file: NotEmpty | None = Field(
        None, description="PEM file of the HTTP API's certificate, which enables HTTPS. Reloaded when it changes"
    )
    api_key_file: NotEmpty | None = Field(
        None, description="PEM file of its private key, unless the certificate's file contains it"
    )
    api_body_limit: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = Field(
        5 * 1024 * 1024,
        description="Maximum size of a request's body, in bytes (except NDJSON, which is streamed)",
    )
    api_body_memory: Annotated[int, Field(ge=1024 * 1024, le=64 * 1024 * 1024 * 1024)] = Field(
        64 * 1024 * 1024, description="Memory for bodies of requests and responses, in bytes, in each process"
    )
    api_connections: Annotated[int, Field(gt=0, le=1_000_000)] = Field(
        10_000,
        description="Concurrent connections to the HTTP API in each process. Beyond that, others are closed or new ones rejected",
    )
    api_idle_timeout: _Seconds = Field(
        75.0, description="Time limit for the pause between two requests of a connection to the HTTP API"
    )
    api_header_timeout: _Seconds = Field(10.0, description="Time limit for the header of a request to the HTTP API")
    api_body_timeout: _Seconds = Field(
        30.0, description="Time limit for the body of a request to the HTTP API, or for each piece of an NDJSON body"
    )
    api_metrics_port: Port = Field(
        9465, description="Port of the HTTP API's /metrics, on INGEST_METRICS_HOST (0: disabled)"
    )
    durability: Annotated[Durability, BeforeValidator(lower)] = Field(
        Durability.MEMORY,
        description="Guarantee for orders that the HTTP API has confirmed: memory, fsync (on Redis' disk) or replicated",
    )
    durability_replicas: Annotated[int, Field(gt=0, le=100)] = Field(
        1, description="With replicated: number of Redis replicas that have received the orders"
    )
    # -- the console ---------------------------------------------------------------------------------------------------
    console: OnOff = Field("on", description="The operations console at /console/ of `ingest api`")
    console_secret: SigningSecret | None = Field(
        None,
        description="Secret of at least 32 characters that signs the console's sessions. Set it for several `ingest api`, or for "
        "sessions that survive a restart",
    )
    console_proxy_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] | None = Field(
        None, description="Header in which a reverse proxy sends the authenticated user, such as X-Forwarded-User"
    )
    console_proxies: Networks | None = Field(
        None, description="Addresses or networks of that proxy, separated by commas. The header of others is ignored"
    )
    console_proxy_scopes: Scopes = Field(
        "read", description="Scopes of the users of that proxy, separated by commas: read, personal, operate, erase"
    )
    # -- webhooks -----------------------------------------------------------------------------------------------------
    webhooks: NotEmpty | None = Field(
        None, description="TOML file of the webhooks. Without it, webhooks are not accepted"
    )
    coalesce: Coalesce = Field(
        60.0,
        description="Time within which a repeated webhook does not enqueue an order that still waits (0: it always does)",
    )
    # -- the outbox of `ingest relay` ---------------------------------------------------------------------------------
    outbox_dsn: SecretStr | None = Field(
        None, description="PostgreSQL with the outbox of `ingest relay`: postgresql://user:password@host/db"
    )
    outbox_table: Annotated[str, Field(pattern=r"^([a-z_][a-z0-9_]{0,47}\.)?[a-z_][a-z0-9_]{0,47}$")] = Field(
        "order_outbox", description="Table of the outbox, with its schema unless the search path contains it"
    )
    outbox_batch: Annotated[int, Field(gt=0, le=5_000)] = Field(
        500, description="Maximum number of rows that the relay enqueues in one transaction"
    )
    outbox_poll_interval: Annotated[Duration, Field(ge=0.05, le=3600)] = Field(
        1.0, description="Interval at which the relay looks for rows without a notification"
    )
    outbox_key_lifetime: Annotated[Duration, Field(ge=60, le=30 * 86_400)] = Field(
        86_400.0, description="How long Redis keeps the idempotency key of a row of the outbox"
    )
    relay_metrics_port: Port = Field(
        9466, description="Port of the relay's /metrics, on INGEST_METRICS_HOST (0: disabled)"
    )
    # -----------------------------------------------------------------------------------------------------------------
