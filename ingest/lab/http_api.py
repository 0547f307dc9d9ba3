"""Sends requests to `ingest api`, or to another measured server, on a port of this machine."""

import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from itertools import islice

from ingest.lab.commands import TIMEOUT, LoggedProcess
from ingest.lab.errors import LabFailed

_POLL_SECONDS = 0.02
# The limit of one NDJSON request.
_STREAMED = 100_000


def wait_until_served(parts: Sequence[LoggedProcess], port: int) -> None:
    """Wait until an HTTP server responds on the port.

    Args:
        parts: the processes of the server.
        port: port of this machine.

    Raises:
        LabFailed: a process has ended, or the server did not respond in time.
    """
    deadline = time.monotonic() + TIMEOUT
    while not _responds(port):
        if ended := next((part for part in parts if part.has_ended(within=_POLL_SECONDS)), None):
            raise ended.failed("ended unexpectedly")
        if time.monotonic() > deadline:
            raise LabFailed(f"no server responds on port {port}")


def post_orders(port: int, order_ids: Sequence[str]) -> None:
    """Announce orders with NDJSON requests.

    Raises:
        LabFailed: not all orders were accepted.
    """
    ids = iter(order_ids)
    while part := list(islice(ids, _STREAMED)):
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        try:
            body = "".join(f"{order_id}\n" for order_id in part).encode()
            connection.request("POST", "/v1/orders", body, {"Content-Type": "application/x-ndjson"})
            response = connection.getresponse()
            if response.status != 202:
                raise LabFailed(
                    f"the HTTP API responded with {response.status}: {response.read(500).decode(errors='replace')}"
                )
        except (OSError, HTTPException) as error:
            raise LabFailed(f"the HTTP API does not respond: {error}") from error
        finally:
            connection.close()


def _responds(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        connection.getresponse()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    return True
