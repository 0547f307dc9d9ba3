"""Reports the start and the end of each HTTP request of a transport, to measure how much the API can process."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Protocol

from ingest.upstream.http.transport import Method, NoDocument, NoResponse, OnHeaders, Options, Transport

_OVERLOADED = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}

OpenTransport = Callable[[Options], AbstractAsyncContextManager[Transport]]


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


def observed(opener: OpenTransport, attempts: Attempts | None) -> OpenTransport:
    """The opener of transports whose requests are reported. Without `attempts`, the same opener."""
    if attempts is None:
        return opener

    @asynccontextmanager
    async def open_observed(options: Options) -> AsyncIterator[Transport]:
        async with opener(options) as transport:
            yield ObservedTransport(transport, attempts)

    return open_observed


class ObservedTransport:
    """A transport that reports its requests and otherwise acts as the transport that it wraps."""

    def __init__(self, transport: Transport, attempts: Attempts, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = transport.send
        self._attempts = attempts
        self._clock = clock

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_headers: OnHeaders | None = None,
    ) -> bytes:
        """See `Transport`."""
        attempts, clock = self._attempts, self._clock
        attempts.record_start()
        started_at = clock()
        try:
            document = await self._send(url, headers, method, body, on_headers)
        except NoDocument as response:
            if response.status in _OVERLOADED:
                attempts.record_overload(started_at)
            else:
                attempts.record_end()
            raise
        except NoResponse as reason:
            if reason.timed_out:
                attempts.record_overload(started_at)
            else:
                attempts.record_end()
            raise
        except BaseException:
            attempts.record_end()
            raise
        attempts.record_document(started_at, clock())
        return document
