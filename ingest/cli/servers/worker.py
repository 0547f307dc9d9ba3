"""`ingest worker`: runs the worker processes."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.options import Sources
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from ingest.services.workers.sources_reload import ReadAgain
    from ingest.settings import Settings
    from ingest.settings.packed import LoadedSettings

Work = Callable[["LoadedSettings", "ReadAgain"], int]
"""What the command does with its settings, and with the function that reads them again. Returns the exit code."""


def work_here(loaded: "LoadedSettings", read_again: "ReadAgain") -> int:
    """Run the processes from this one."""
    from ingest.services.worker import run_worker
    from ingest.settings.packed import pack_settings, unpack_settings
    from ingest.telemetry.logs import begin_logs

    settings = loaded.settings
    begin_logs(settings.log_format, settings.log_level, loaded.unknown)
    return run_worker(unpack_settings(pack_settings(loaded))._replace(settings=settings), read_again)


def worker(
    context: typer.Context,
    *,
    source: Sources = None,
    processes: Annotated[
        int | None, typer.Option(help="Number of worker processes. [INGEST_PROCESSES]", metavar="N")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Orders in flight in each process. [INGEST_CONCURRENCY]", metavar="N")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics. 0 disables it. [INGEST_METRICS_PORT]", metavar="N")
    ] = None,
) -> None:
    """Fetch queued orders and store them, until stopped.

    If Redis or PostgreSQL is unavailable, at the start or later, the worker waits. Any number of workers on any number
    of hosts share the work.

    Examples:
    `ingest worker` runs with the settings from the environment.

    `ingest worker --processes 4 --concurrency 250` keeps up to 1,000 orders in flight.

    `ingest worker --source shop-de --source shop-fr` runs two of the sources of the sources file.

    `INGEST_LOG_FORMAT=json ingest worker --metrics-port 9464` logs JSON lines and serves /metrics.

    Stop it with SIGTERM or Ctrl-C: it finishes the orders in flight within INGEST_SHUTDOWN_GRACE, releases the rest
    to the queue, and exits with 0. A second signal shortens this.
    """
    from ingest.settings import load_settings, names_in_dot_env, unknown_settings
    from ingest.settings.packed import LoadedSettings, pack_settings

    def read() -> LoadedSettings:
        settings = load_settings(processes=processes, concurrency=concurrency, metrics_port=metrics_port)
        unknown = unknown_settings(os.environ, names_in_dot_env())
        sources, rejected = _chosen(settings, source)
        return LoadedSettings(settings, sources, unknown, rejected)

    work: Work = context.obj
    raise typer.Exit(work(read(), lambda: pack_settings(read())))


def _chosen(settings: "Settings", names: list[str] | None) -> "tuple[dict[str, Settings], dict[str, str]]":
    from ingest.domain.source_name import chosen_sources
    from ingest.settings.source_file import source_names, usable_source_settings

    # A worker of a few sources does not need the secrets of the others.
    sources, rejected = usable_source_settings(settings, chosen_sources(names, source_names(settings)))
    if not sources:
        raise ConfigError("; ".join(rejected.values()))
    return sources, rejected
