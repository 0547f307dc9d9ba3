"""Settings of metrics and logs, a part of `Settings`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from ingest.settings.types import LONGEST, NotEmpty, Port, Topic, lower

# Frequent checks for shorter blocks would cost too much. The lag histogram shows them.
_SHORTEST_BLOCK = 0.1


class TelemetrySettings(Topic):
    """The metrics and logs of a command."""

    metrics_port: Port = Field(9464, description="Port of /metrics (0: disabled)")
    # An empty value would mean all addresses.
    metrics_host: NotEmpty = Field("127.0.0.1", description="Address on which /metrics listens")
    # Well before `heartbeat_ttl`, because a process whose loop is blocked for that long counts as dead.
    loop_block_warning: Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)] = Field(
        1.0,
        description="Log a warning with the stack when the event loop is blocked for longer than this (at least 0.1, or 0 for never)",
    )
    log_format: Annotated[Literal["json", "console"], BeforeValidator(lower)] = Field(
        "console", description="json or console"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower)] = Field(
        "info", description="debug, info, warning or error"
    )

    @field_validator("loop_block_warning")
    @classmethod
    def _no_tiny_block(cls, value: float) -> float:
        if 0 < value < _SHORTEST_BLOCK:
            raise ValueError(f"must be at least {_SHORTEST_BLOCK}, or 0 for no warning")
        return value
