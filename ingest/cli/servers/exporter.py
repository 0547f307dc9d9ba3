"""`ingest exporter`: serves the state of the queue, for an autoscaler."""

from typing import Annotated

import typer

from ingest.cli.invocation import start
from ingest.cli.options import Sources


def exporter(
    *,
    source: Sources = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics. [INGEST_METRICS_PORT]", metavar="N")
    ] = None,
) -> None:
    """Serve the metrics of the queues, until stopped.

    It needs no worker.

    Workers serve them as well. If an autoscaler stops all workers, this shows it when there is work again. It only needs Redis, and the sources file if there are several sources.

    Examples:
    `ingest exporter --metrics-port 9464` serves /metrics, /healthz and /readyz.

    Stop it with SIGTERM or Ctrl-C.
    """
    from ingest.services.exporter import run_exporter

    settings = start(metrics_port=metrics_port)
    raise typer.Exit(run_exporter(settings, source))
