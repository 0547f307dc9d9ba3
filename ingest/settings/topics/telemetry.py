"""Settings of metrics, logs and traces, a part of `Settings`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from ingest.settings.types import LONGEST, Duration, NotEmpty, Port, Topic, lower
from ingest.settings.urls import require_scheme

# Frequent checks for shorter blocks would cost too much. The lag histogram shows them.
_SHORTEST_BLOCK = 0.1


class TelemetrySettings(Topic):
    """The metrics, logs and traces of a command."""

    metrics_port: Port = Field(9464, description="Port of /metrics (0: disabled)")
    # An empty value would mean all addresses.
    metrics_host: NotEmpty = Field("127.0.0.1", description="Address on which /metrics listens")
    # Well before `heartbeat_ttl`, because a process whose loop is blocked for that long counts as dead.
    loop_block_warning: Annotated[Duration, Field(ge=0, le=LONGEST)] = Field(
        1.0,
        description="Log a warning with the stack when the event loop is blocked for longer than this (at least 0.1, or 0 for never)",
    )
    log_format: Annotated[Literal["json", "console"], BeforeValidator(lower)] = Field(
        "console", description="json or console"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower)] = Field(
        "info", description="debug, info, warning or error"
    )

    otlp_endpoint: NotEmpty | None = Field(
        None,
        description="URL of the OTLP receiver for traces, such as http://collector:4318. Requires the extra `otel`",
    )
    otlp_sampling: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0.01,
        description="Share of the orders that are traced, from 0 to 1. An order that arrives with a trace keeps it",
    )

    @field_validator("otlp_endpoint")
    @classmethod
    def _base_url(cls, value: str | None) -> str | None:
        if value is not None:
            require_scheme(value, ("http", "https"), "http://collector:4318")
            if any(sign in value for sign in "@?#"):
                raise ValueError("must not contain a credential: set OTEL_EXPORTER_OTLP_HEADERS instead")
        return value

    @field_validator("loop_block_warning")
    @classmethod
    def _no_tiny_block(cls, value: float) -> float:
        if 0 < value < _SHORTEST_BLOCK:
            raise ValueError(f"must be at least {_SHORTEST_BLOCK}, or 0 for no warning")
        return value
