"""The settings of `ingest api` and `ingest relay`; part of `Settings`."""

from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from ingest.domain.deliveries.accepted import Durability
from ingest.settings.topic import Topic
from ingest.settings.types import OnOff, lower

_Port = Annotated[int, Field(ge=0, le=65_535)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class ApiSettings(Topic):
    """Settings that only the HTTP API and the relay use."""

    # -- the server of `ingest api` -----------------------------------------------------------------------------------
    api_host: Annotated[str, Field(min_length=1)] = Field(
        "127.0.0.1", description="Address on which the HTTP API listens"
    )
    api_port: _Port = Field(8080, description="Port of the HTTP API; 0: any free one, which the log names")
    api_processes: Annotated[int, Field(gt=0, le=256)] = Field(1, description="Processes of one `ingest api`")
    api_keys_file: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="File of the API keys; read again when it changes"
    )
    api_open: OnOff = Field("off", description="on: without API keys, listen on other addresses than the loopback, too")
    api_cert_file: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="PEM file of the HTTP API's certificate; with it, HTTPS is served; read again when it changes"
    )
    api_key_file: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="PEM file of its private key, if the certificate's file has none"
    )
    api_body_limit: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = Field(
        5 * 1024 * 1024,
        description="Maximum size of a request's body, in bytes; NDJSON, which is streamed, may be larger",
    )
    api_body_memory: Annotated[int, Field(ge=1024 * 1024, le=64 * 1024 * 1024 * 1024)] = Field(
        64 * 1024 * 1024, description="Memory for bodies that are being received, in bytes, in each process"
    )
    api_connections: Annotated[int, Field(gt=0, le=1_000_000)] = Field(
        10_000,
        description="Connections to the HTTP API at a time, in each process; beyond, idle ones are closed, or new ones refused",
    )
    api_idle_timeout: _Seconds = Field(
        75.0, description="Time limit for the pause between two requests of a connection to the HTTP API"
    )
    api_header_timeout: _Seconds = Field(10.0, description="Time limit for the header of a request to the HTTP API")
    api_body_timeout: _Seconds = Field(
        30.0, description="Time limit for the body of a request to the HTTP API; for NDJSON, for each piece of it"
    )
    api_metrics_port: _Port = Field(
        9465, description="Port of the HTTP API's /metrics, on INGEST_METRICS_HOST; 0: disabled"
    )
    durability: Annotated[Durability, BeforeValidator(lower)] = Field(
        Durability.MEMORY,
        description="What is certain when the HTTP API has confirmed orders: memory, fsync (on Redis' disk) or replicated",
    )
    durability_replicas: Annotated[int, Field(gt=0, le=100)] = Field(
        1, description="With replicated: how many replicas of Redis have the orders"
    )
    # -- webhooks -----------------------------------------------------------------------------------------------------
    webhooks: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Sources of webhooks, a TOML file; without it, no webhook is accepted"
    )
    coalesce: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        60.0,
        description="An order that a webhook announces again within this time, while it still waits, is not queued twice; 0: it is",
    )
    # -- the outbox of `ingest relay` ---------------------------------------------------------------------------------
    outbox_dsn: SecretStr | None = Field(
        None, description="PostgreSQL with the outbox of `ingest relay`: postgresql://user:password@host/db"
    )
    outbox_table: Annotated[str, Field(pattern=r"^([a-z_][a-z0-9_]{0,47}\.)?[a-z_][a-z0-9_]{0,47}$")] = Field(
        "order_outbox", description="The outbox's table, with its schema if that is not in the search path"
    )
    outbox_batch: Annotated[int, Field(gt=0, le=5_000)] = Field(
        500, description="Maximum number of rows that the relay announces in one transaction"
    )
    outbox_poll_interval: Annotated[float, Field(ge=0.05, le=3600, allow_inf_nan=False)] = Field(
        1.0, description="How often the relay looks for rows that it was not told of"
    )
    outbox_key_lifetime: Annotated[float, Field(ge=60, le=30 * 86_400, allow_inf_nan=False)] = Field(
        86_400.0, description="How long Redis remembers that a row of the outbox was announced"
    )
    relay_metrics_port: _Port = Field(
        9466, description="Port of the relay's /metrics, on INGEST_METRICS_HOST; 0: disabled"
    )
    # -----------------------------------------------------------------------------------------------------------------
