"""Observes attempts, each of which is one HTTP request to the external API."""

import time
from collections.abc import Awaitable
from typing import Protocol

from ingest.upstream.http.transport import NoDocument, NoResponse

_OVERLOADED = {503, 504}


class Attempts(Protocol):
    """Observes attempts. An attempt is one HTTP request, and times are in monotonic seconds. One end follows each start."""

    def record_start(self) -> None:
        """An attempt begins."""

    def record_document(self, started_at: float, ended_at: float) -> None:
        """It has brought a document."""

    def record_overload(self, started_at: float) -> None:
        """It was rejected because the API is overloaded, or timed out."""

    def record_end(self) -> None:
        """It has ended in another way, or was cancelled."""


async def observed(attempts: Attempts, request: Awaitable[bytes]) -> bytes:
    """Await a request of a transport, and report it."""
    attempts.record_start()
    started_at = time.monotonic()
    try:
        document = await request
    except BaseException as error:
        if _is_overload(error):
            attempts.record_overload(started_at)
        else:
            attempts.record_end()
        raise
    attempts.record_document(started_at, time.monotonic())
    return document


def _is_overload(error: BaseException) -> bool:
    if isinstance(error, NoDocument):
        return error.status in _OVERLOADED
    return isinstance(error, NoResponse) and error.timed_out
