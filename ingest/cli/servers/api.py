"""`ingest api`: runs the HTTP API."""

from typing import Annotated

import typer

from ingest.cli.invocation import start


def api(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [INGEST_API_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. [INGEST_API_PORT]", metavar="N")] = None,
    processes: Annotated[
        int | None, typer.Option(help="Number of processes. [INGEST_API_PROCESSES]", metavar="N")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics. 0 disables it. [INGEST_API_METRICS_PORT]", metavar="N")
    ] = None,
) -> None:
    """Serve the HTTP API, until stopped.

    It starts even while Redis is unavailable, and responds with 503 until then.

    Examples:
    `ingest api` serves on http://127.0.0.1:8080, without API keys only to this machine.

    `ingest api --host 0.0.0.0 --processes 4` listens on the network. INGEST_API_KEYS_FILE must name the file of the
    keys.

    `curl --json '{"order_ids": ["536365"]}' http://127.0.0.1:8080/v1/orders` enqueues an order.

    Stop it with SIGTERM or Ctrl-C: it accepts no more connections, finishes what runs within INGEST_SHUTDOWN_GRACE,
    and exits with 0.
    """
    from ingest.services.api import run_api

    settings = start(api_host=host, api_port=port, api_processes=processes, api_metrics_port=metrics_port)
    raise typer.Exit(run_api(settings))
