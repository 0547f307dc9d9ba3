"""Requests by libcurl: several times cheaper than aiohttp, and with HTTP/2; needs pycurl, and Linux."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pycurl

from ingest.upstream.curl_call import Call, Trust
from ingest.upstream.curl_loop import CurlLoop
from ingest.upstream.transport import Options


class CurlTransport:
    """As many handles as there were ever requests at once, and one pool of connections for them."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self._trust = _trust()
        self._running = CurlLoop()
        self._start = self._running.start
        self._idle: list[Call] = []
        self._watch: asyncio.TimerHandle | None = None
        self._patience = options.limits.read
        # libcurl's own limit for silence counts whole seconds, so requests are looked at now and then: a silence is
        # noticed so much late.
        self._pace = min(1.0, max(0.02, self._patience / 8))

    @classmethod
    @asynccontextmanager
    async def open(cls, options: Options) -> AsyncIterator[Self]:
        """A transport, which ends its connections and what is under way when it is left."""
        transport = cls(options, asyncio.get_running_loop())
        try:
            yield transport
        finally:
            transport._close()

    async def get(self, url: str) -> bytes:
        """See `Transport`."""
        call = self._idle.pop() if self._idle else Call(self._options, self._trust)
        ended = self._loop.create_future()
        call.aim(url, ended)
        self._start(call)
        if self._watch is None:
            self._watch = self._loop.call_later(self._pace, self._look)
        try:
            return call.body(await ended)
        except asyncio.CancelledError:
            self._running.drop(call)
            raise
        finally:
            call.clear()
            self._idle.append(call)

    def _look(self) -> None:
        """End the requests that have been silent for too long."""
        now = self._loop.time()
        silent = [call for call in self._running.calls.values() if call.is_silent(now, self._patience)]
        for call in silent:
            self._running.fail(call, pycurl.E_OPERATION_TIMEDOUT, f"silent for {self._patience} s")
        self._watch = self._loop.call_later(self._pace, self._look) if self._running.calls else None

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._running.close()
        for call in self._idle:
            call.curl.close()


def _trust() -> Trust:
    """What Python trusts: SSL_CERT_FILE and SSL_CERT_DIR, or else the system's."""
    paths = ssl.get_default_verify_paths()
    if not paths.cafile:
        return [(pycurl.CAPATH, paths.capath)] if paths.capath else []
    trust = [(pycurl.CAINFO, paths.cafile)]
    # The system's folder holds what its file does; without a folder, libcurl reads the file once, not for each connection.
    if paths.capath and Path(paths.capath).resolve() not in Path(paths.cafile).resolve().parents:
        trust.append((pycurl.CAPATH, paths.capath))
    return trust
