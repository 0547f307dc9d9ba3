"""`ingest health`: asks the worker of this host whether it lives."""

from http.client import HTTPConnection, HTTPException
from typing import Annotated

import typer

EPILOG = """
Examples:

`ingest health` prints `ok`, and exits with 0, if the worker of this host (or container) lives.

`HEALTHCHECK CMD ["ingest", "health"]` is what the image has; the same as `curl -f localhost:9464/healthz`.
"""

# Who listens on every address is asked on the loopback.
_EVERYWHERE = ("0.0.0.0", "")  # noqa: S104  asked, not bound


def health(
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=0.1)] = 3.0,
) -> None:
    """Ask the `ingest worker` of this host whether its processes live.

    The exit code is 1 if one of them is silent for longer than INGEST_HEARTBEAT_TTL, or nobody answers at
    INGEST_METRICS_PORT. Whether Redis, PostgreSQL and the external API can be reached is another question:
    see `ingest status`.
    """
    from ingest.cli.common import start
    from ingest.domain.errors import ConfigError, UserError

    settings = start()
    if not settings.metrics_port:
        raise ConfigError("INGEST_METRICS_PORT is 0: nobody listens who could be asked")
    host = "127.0.0.1" if settings.metrics_host in _EVERYWHERE else settings.metrics_host
    connection = HTTPConnection(host, settings.metrics_port, timeout=timeout)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        text = answer.read(1000).decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        raise UserError(f"no answer at {host}:{settings.metrics_port}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise UserError(f"{text} (HTTP {answer.status})")
    typer.echo(text)
