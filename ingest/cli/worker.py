"""`ingest worker`: runs the worker processes."""

from typing import Annotated

import typer

EPILOG = """
Examples:

`ingest worker` runs with the settings of the environment.

`ingest worker --processes 4 --concurrency 250` has up to 1,000 orders in flight.

`INGEST_LOG_FORMAT=json ingest worker --metrics-port 9464` logs for machines, and shows /metrics.

Stop it with SIGTERM or Ctrl-C: it finishes what it has in hand within INGEST_SHUTDOWN_GRACE, gives the rest back,
and exits with 0. A second signal makes it hurry.
"""


def worker(
    *,
    processes: Annotated[int | None, typer.Option(help="Worker processes. [INGEST_PROCESSES]")] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Orders in flight in each process. [INGEST_CONCURRENCY]")
    ] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Port of /metrics; 0: none. [INGEST_METRICS_PORT]")] = None,
) -> None:
    """Fetch the queued orders and store them, until told to stop.

    Waits for Redis and PostgreSQL if they are away, now or later. Any number of these commands, on any
    number of hosts, share the work.
    """
    from ingest.app import run_worker
    from ingest.cli.common import start

    settings = start(processes=processes, concurrency=concurrency, metrics_port=metrics_port)
    raise typer.Exit(run_worker(settings))
