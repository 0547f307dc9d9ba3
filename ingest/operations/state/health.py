"""Checks over HTTP whether the processes of a worker are alive."""

from contextlib import closing
from http.client import HTTPConnection, HTTPException

from ingest.domain.errors import UserError

# A worker that listens on all addresses is checked on the loopback address.
_ALL_ADDRESSES = ("0.0.0.0", "")  # noqa: S104  not bound


class Unhealthy(UserError):
    """The worker does not respond, or one of its processes is not alive."""


def check_worker(host: str, port: int, *, timeout: float) -> str:
    """Return the text of `/healthz` at the worker's metrics endpoint, within `timeout` seconds, or raise `Unhealthy`."""
    target = "127.0.0.1" if host in _ALL_ADDRESSES else host
    try:
        with closing(HTTPConnection(target, port, timeout=timeout)) as connection:
            connection.request("GET", "/healthz")
            response = connection.getresponse()
            text = response.read(1000).decode(errors="replace").strip()
    except (OSError, HTTPException, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unhealthy(f"no response from {target}:{port}: {reason}") from error
    if response.status != 200:
        raise Unhealthy(f"{text} (HTTP {response.status})")
    return text
