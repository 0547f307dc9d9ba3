"""`ingest health`: checks whether the worker on this host is alive."""

from typing import Annotated

import typer

from ingest.cli.invocation import start


def health(
    *, timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=0.1, max=3600)] = 3.0
) -> None:
    """Check that the worker on this host is alive.

    The exit code is 1 if a process has not reported for longer than INGEST_HEARTBEAT_TTL, or if nothing answers on
    INGEST_METRICS_PORT. `ingest status` shows whether Redis, PostgreSQL and the external API are available.

    Examples:
    `ingest health` prints `ok` and exits with 0 if the worker on this host (or in this container) is alive.

    `curl -f localhost:9464/healthz` does the same.

    The image has `HEALTHCHECK CMD ["ingest", "health"]`.
    """
    from ingest.domain.errors import ConfigError
    from ingest.operations.state.health import check_worker

    settings = start()
    if not settings.metrics_port:
        raise ConfigError("INGEST_METRICS_PORT is 0: the worker does not listen")
    typer.echo(check_worker(settings.metrics_host, settings.metrics_port, timeout=timeout))
