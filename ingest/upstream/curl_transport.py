"""The transport on libcurl: needs less CPU time than aiohttp and supports HTTP/2; requires pycurl and Linux."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pycurl

from ingest.upstream.curl_call import Call, TlsOptions
from ingest.upstream.curl_loop import CurlLoop
from ingest.upstream.tls import TlsMaterial
from ingest.upstream.transport import Method, OnHeaders, Options


class CurlTransport:
    """Reusable libcurl handles, one for each concurrent request, and one connection pool for all of them."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self._trust = _certificates(options.tls)
        self._requests = CurlLoop()
        self._start = self._requests.start
        self._idle: list[Call] = []
        self._watch: asyncio.TimerHandle | None = None
        self._read_timeout = options.limits.read
        # libcurl's own limit for slow transfers counts whole seconds, so requests are checked periodically: an idle request
        # is noticed at most this much late.
        self._check_every = min(1.0, max(0.02, self._read_timeout / 8))

    @classmethod
    @asynccontextmanager
    async def open(cls, options: Options) -> AsyncIterator[Self]:
        """Open a transport; on exit, its running requests end and its connections are closed."""
        transport = cls(options, asyncio.get_running_loop())
        try:
            yield transport
        finally:
            transport._close()

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_headers: OnHeaders | None = None,
    ) -> bytes:
        """See `Transport`."""
        call = self._idle.pop() if self._idle else Call(self._options, self._trust)
        ended = self._loop.create_future()
        call.prepare(url, headers, method, body, ended)
        self._start(call)
        if self._watch is None:
            self._watch = self._loop.call_later(self._check_every, self._check)
        try:
            return call.body(await ended, on_headers)
        except asyncio.CancelledError:
            self._requests.cancel(call)
            raise
        finally:
            call.reset()
            self._idle.append(call)

    def _check(self) -> None:
        """End the requests that have received no data for too long."""
        now = self._loop.time()
        idle = [call for call in self._requests.calls.values() if call.is_idle(now, self._read_timeout)]
        for call in idle:
            self._requests.fail(call, pycurl.E_OPERATION_TIMEDOUT, f"no data for {self._read_timeout} s")
        self._watch = self._loop.call_later(self._check_every, self._check) if self._requests.calls else None

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._requests.close()
        for call in self._idle:
            call.curl.close()


def _certificates(material: TlsMaterial | None) -> TlsOptions:
    """Return the options for TLS, from memory: libcurl would read a file again for each connection."""
    if material is None:
        return _trusted_by_python()
    options: list[tuple[int, str | bytes]] = []
    if material.ca is None:
        options += _trusted_by_python()
    else:
        options.append((pycurl.CAINFO_BLOB, material.ca))
    if material.cert is not None:
        options += [(pycurl.SSLCERT_BLOB, material.cert), (pycurl.SSLKEY_BLOB, material.key or material.cert)]
    return options


def _trusted_by_python() -> list[tuple[int, str | bytes]]:
    """Return the certificates that Python trusts: SSL_CERT_FILE and SSL_CERT_DIR, or the system's."""
    paths = ssl.get_default_verify_paths()
    if not paths.cafile:
        return [(pycurl.CAPATH, paths.capath)] if paths.capath else []
    trust: list[tuple[int, str | bytes]] = [(pycurl.CAINFO, paths.cafile)]
    # The system's directory has the same content as its file; without a directory, libcurl reads the file only once.
    if paths.capath and Path(paths.capath).resolve() not in Path(paths.cafile).resolve().parents:
        trust.append((pycurl.CAPATH, paths.capath))
    return trust
