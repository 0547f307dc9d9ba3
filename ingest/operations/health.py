"""Asks a worker over HTTP whether its processes are alive."""

from contextlib import closing
from http.client import HTTPConnection, HTTPException

from ingest.domain.errors import UserError

# A worker that listens on all addresses is asked on the loopback address.
_ALL_ADDRESSES = ("0.0.0.0", "")  # noqa: S104  asked, not bound


class Unhealthy(UserError):
    """A worker that does not answer, or reports that one of its processes is not alive."""


def check_worker(host: str, port: int, *, timeout: float) -> str:
    """Return what the worker's `/healthz` says.

    Args:
        host: the address on which it serves metrics.
        port: the port of the metrics.
        timeout: seconds to wait for an answer.

    Raises:
        Unhealthy: the message says why.
    """
    target = "127.0.0.1" if host in _ALL_ADDRESSES else host
    try:
        with closing(HTTPConnection(target, port, timeout=timeout)) as connection:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            text = answer.read(1000).decode(errors="replace").strip()
    except UnicodeError as error:
        raise Unhealthy(f"no answer at {target}:{port}: the host is not a name or an address") from error
    except OSError as error:
        raise Unhealthy(
            f"no answer at {target}:{port}: {error.strerror or str(error) or type(error).__name__}"
        ) from error
    except HTTPException as error:
        raise Unhealthy(f"no answer at {target}:{port}: {str(error) or type(error).__name__}") from error
    if answer.status != 200:
        raise Unhealthy(f"{text} (HTTP {answer.status})")
    return text
