"""Opens the tracing of a process by its settings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from ingest.domain.errors import ConfigError
from ingest.telemetry.logs import get_logger
from ingest.telemetry.tracing.port import tracing_by

if TYPE_CHECKING:
    from ingest.settings import Settings
    from ingest.telemetry.tracing.otel import OtelTracing

_Result = TypeVar("_Result")
_log = get_logger("traces")


def require_tracing(settings: "Settings") -> None:
    """Import the tracing library if the settings need it, before processes are forked, which then share its memory.

    Raises:
        ConfigError: it is not installed.
    """
    if settings.otlp_endpoint is not None:
        _import().load(settings.otlp_endpoint)
        _log.info("tracing", endpoint=settings.otlp_endpoint, share=settings.otlp_sampling)


@asynccontextmanager
async def tracing_of(settings: "Settings", command: str) -> AsyncIterator[None]:
    """Record traces in the block, and in the tasks that it starts, if the settings name a receiver.

    Raises:
        ConfigError: the tracing library is not installed.
    """
    if settings.otlp_endpoint is None:
        yield
        return
    opening = _import().open(settings.otlp_endpoint, settings.otlp_sampling, f"ingest-{command}")
    async with opening as tracing:
        with tracing_by(tracing):
            yield


async def traced(settings: "Settings", command: str, work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Do the work of a command that enqueues orders, with traces as the settings require.

    Raises:
        ConfigError: the tracing library is not installed.
    """
    async with tracing_of(settings, command):
        return await work()


def _import() -> "type[OtelTracing]":
    try:
        from ingest.telemetry.tracing.otel import OtelTracing  # noqa: PLC0415  only some need it
    except ImportError as error:
        raise ConfigError("INGEST_OTLP_ENDPOINT: requires the extra `otel`: install order-ingest[otel]") from error
    return OtelTracing
