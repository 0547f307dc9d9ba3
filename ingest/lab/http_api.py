"""Talks to `ingest api`, or to what is measured in its place, on a port of this machine."""

import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from itertools import islice

from ingest.lab.commands import TIMEOUT, LoggedProcess
from ingest.lab.errors import LabFailed

_ASK_AGAIN_AFTER = 0.02
# As many as one request of NDJSON may have.
_STREAMED = 100_000


def wait_until_served(parts: Sequence[LoggedProcess], port: int) -> None:
    """Wait until something answers HTTP on the port.

    Args:
        parts: the processes that are going to.
        port: of this machine.

    Raises:
        LabFailed: one of them has ended, or the time is over.
    """
    deadline = time.monotonic() + TIMEOUT
    while not _answers(port):
        if ended := next((part for part in parts if part.has_ended(within=_ASK_AGAIN_AFTER)), None):
            raise ended.failed("ended by itself")
        if time.monotonic() > deadline:
            raise LabFailed(f"nothing answers on port {port}")


def post_orders(port: int, order_ids: Sequence[str]) -> None:
    """Announce orders by requests of NDJSON.

    Raises:
        LabFailed: they were not all accepted.
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
                    f"the HTTP API answers {response.status}: {response.read(500).decode(errors='replace')}"
                )
        except (OSError, HTTPException) as error:
            raise LabFailed(f"the HTTP API does not answer: {error}") from error
        finally:
            connection.close()


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        connection.getresponse()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    return True
