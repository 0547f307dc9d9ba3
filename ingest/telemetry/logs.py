"""Structured logs: an event name and fields, JSON or for a console, always on stderr."""

import logging
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Literal

# structlog would import rich for tracebacks that are not used here: 79 modules in each worker.
_has_rich = "rich" in sys.modules
if not _has_rich:
    sys.modules["rich"] = None  # type: ignore[assignment]  # prevents the import
import structlog  # noqa: E402
from structlog.types import EventDict, Processor, WrappedLogger  # noqa: E402

if not _has_rich:
    del sys.modules["rich"]


def setup_logs(log_format: Literal["json", "console"], log_level: str) -> None:
    """Configure structlog, and route the log records of libraries through it. Call it once, at start-up."""
    stamp: Processor = structlog.processors.TimeStamper(fmt="iso", utc=True)
    if log_format == "console":
        stamp = _stamp_time if sys.stderr.isatty() else _stamp_date_and_time
    shared: list[Processor] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, stamp]
    finish: list[Processor]
    if log_format == "json":
        finish = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Plain tracebacks, because the other formatters show local variables, which may hold orders and secrets.
        plain = structlog.dev.plain_traceback
        finish = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    structlog.configure(
        processors=[*shared, *finish],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_library],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    logging.basicConfig(handlers=[handler], force=True)
    change_level(log_level)


def change_level(log_level: str) -> None:
    """Change the level of the logs of this process. The level of libraries is never below warning."""
    level = logging.getLevelNamesMapping()[log_level.upper()]
    structlog.configure(**structlog.get_config() | {"wrapper_class": structlog.make_filtering_bound_logger(level)})
    logging.getLogger().setLevel(max(level, logging.WARNING))


def begin_logs(log_format: Literal["json", "console"], log_level: str, unknown_settings: Iterable[str]) -> None:
    """Configure the logs, and warn about these unknown settings."""
    setup_logs(log_format, log_level)
    for line in unknown_settings:
        get_logger("settings").warning("unknown_setting", problem=line)


def _stamp_time(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Add the time of day in UTC: `09:15:22.123`."""
    event = _stamp_date_and_time(logger, name, event)
    event["timestamp"] = event["timestamp"].partition(" ")[2]
    return event


def _stamp_date_and_time(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Add the date and the time in UTC, because a file is read on another day: `2026-11-20 09:15:22.123`."""
    del logger, name
    event["timestamp"] = datetime.now(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")
    return event


def _name_library(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    del logger, name
    record = event.get("_record")
    if record is not None:
        event["library"] = record.name
    return event


def bound_source(name: str) -> AbstractContextManager[object]:
    """Add the field `source` to every event in the block, and in the tasks that it starts. The unnamed source has no field."""
    return structlog.contextvars.bound_contextvars(**({"source": name} if name else {}))


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of one component. Its events carry the name in the field `component`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(component=name)
    return logger
