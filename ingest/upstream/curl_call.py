"""One libcurl request: a reusable handle with the response it has received."""

import asyncio
import math
from collections.abc import Mapping, Sequence

import pycurl
from multidict import CIMultiDict

from ingest.upstream.curl_errors import CLIENT_ERRORS, NOT_SENT, describe
from ingest.upstream.transport import (
    DNS_CACHE,
    KEEP_ALIVE,
    Method,
    NoDocument,
    NoResponse,
    OnHeaders,
    Options,
    TooLarge,
    TransportFailed,
    has_document,
)

# The options that select the trusted certificates, and our own.
TlsOptions = Sequence[tuple[int, str | bytes]]
# A libcurl error: its number and text.
CurlError = tuple[int, str]
Ended = asyncio.Future[CurlError | None]

_LONGEST_MS = 2**31 - 1
# libcurl does not follow redirects here; this restricts any URL to HTTP all the same.
_HTTP = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
_HAS_HTTP2 = bool(pycurl.version_info()[4] & pycurl.VERSION_HTTP2)


class Call:
    """One reusable request.

    Attributes:
        curl: the libcurl handle.
        ended: resolves when the running request has ended: None on success, or the error.
        progress: the number of headers and bytes received at the last check.
        received_at: when the last new data was noticed, in the loop's time.
        is_sent: whether the request had been sent by the last check.
    """

    __slots__ = (
        "_body",
        "_getinfo",
        "_given",
        "_headers",
        "_limit",
        "_method",
        "_set",
        "_size",
        "_too_large",
        "curl",
        "ended",
        "is_sent",
        "progress",
        "received_at",
    )  # fmt: skip

    def __init__(self, options: Options, tls: TlsOptions) -> None:
        self.curl = curl = pycurl.Curl()
        # A handle looks attributes up among all libcurl constants first: those that every request needs are cached.
        self._set = curl.setopt
        self._getinfo = curl.getinfo
        self._limit = options.limits.body
        # What the handle is set to already.
        self._given: Mapping[str, str] | None = None
        self._method: Method = "GET"
        self._body: list[bytes] = []
        self._headers: list[bytes] = []
        self._size = 0
        self._too_large = False
        self.ended: Ended
        self.progress = (0, 0)
        self.received_at = 0.0
        self.is_sent = False
        for option, value in [*_settings(options), *tls]:
            curl.setopt(option, value)
        if options.tls is not None and options.tls.ca is not None:
            curl.unsetopt(pycurl.CAPATH)  # libcurl may have been built with a directory that it trusts
        curl.setopt(pycurl.HEADERFUNCTION, self._headers.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._receive)

    def prepare(self, url: str, headers: Mapping[str, str], method: Method, sent: bytes | None, ended: Ended) -> None:
        """Prepare the handle for a request, whose body is `sent`."""
        self._set(pycurl.URL, url.encode())
        if headers is not self._given:
            self._set(pycurl.HTTPHEADER, _lines(headers))
            self._given = headers
        if method != "GET" or self._method != "GET":
            self._prepare_method(method, sent or b"")
        self.ended = ended
        self.received_at = 0.0
        self.is_sent = False

    def _prepare_method(self, method: Method, sent: bytes) -> None:
        if method == "GET":
            self._set(pycurl.HTTPGET, 1)
        else:
            self._set(pycurl.POST, 1)
            self._set(pycurl.POSTFIELDS, sent)
        self._method = method

    def reset(self) -> None:
        """Discard the response: it may be large, and the handle may stay unused for long."""
        self._headers.clear()
        self._body.clear()
        self._size = 0
        self._too_large = False

    def body(self, error: CurlError | None, on_headers: OnHeaders | None) -> bytes:
        """Return the body of the request that ended with `error`, see `Transport.send`."""
        status = self._getinfo(pycurl.RESPONSE_CODE)
        if error is None and has_document(status) and (self._body or self._has_whole_head()):
            if on_headers is not None:
                on_headers(_headers(self._headers))
            return self._body[0] if len(self._body) == 1 else b"".join(self._body)
        raise self._failure(status, error)

    def is_idle(self, now: float, limit: float) -> bool:
        """Return whether no data has been received for `limit` seconds, as observed by periodic calls."""
        progress = len(self._headers), self._size
        self.is_sent = self.is_sent or self._is_sent()
        if progress != self.progress or not self.is_sent or self.received_at == 0.0:
            self.progress, self.received_at = progress, now
        return now - self.received_at >= limit

    def _receive(self, chunk: bytes) -> int | None:
        # libcurl before 8.4 limits only announced lengths, and before 8.20 it does not count decompressed bytes.
        self._size += len(chunk)
        if self._size > self._limit:
            self._too_large = True
            return 0  # less than was received: libcurl aborts
        self._body.append(chunk)
        return None

    def _has_whole_head(self) -> bool:
        """Return whether the header block was complete: libcurl accepts the end of the connection instead."""
        return bool(self._headers) and self._headers[-1].isspace()

    def _is_sent(self) -> bool:
        # libcurl sets its connect times even if the connection failed.
        return bool(self._getinfo(pycurl.REQUEST_SIZE))

    def _failure(self, status: int, error: CurlError | None) -> Exception:
        number, text = error or (pycurl.E_OK, "")
        connect_status = self._getinfo(pycurl.HTTP_CONNECTCODE)
        if connect_status == 407:
            return NoDocument(407, {})
        has_status = (error is None or status >= 300) and self._has_whole_head()
        if has_status and not has_document(status):
            # The status is sufficient, even if the rest of the response is missing.
            return NoDocument(status, _headers(self._headers))
        if self._too_large or number == pycurl.E_FILESIZE_EXCEEDED:
            return TooLarge()
        if number == pycurl.E_OPERATION_TIMEDOUT:
            is_sent = self._is_sent()
            return NoResponse(
                "while waiting for the response" if is_sent else "while connecting", timed_out=True, reached=is_sent
            )
        if number in CLIENT_ERRORS:
            return TransportFailed(describe(number, text))
        if connect_status >= 300:
            # Newer libcurl has its own error number for this; older versions report a broken connection.
            return NoResponse(f"the proxy refuses the connection with HTTP {connect_status}", reached=False)
        text = describe(number, text) if error is not None else "the response ended before its body"
        return NoResponse(text, reached=number not in NOT_SENT)


def _settings(options: Options) -> list[tuple[int, int | str | list[str]]]:
    limits = options.limits
    return [
        (pycurl.NOSIGNAL, 1),
        (pycurl.PROTOCOLS, _HTTP),
        # HTTP/2 if TLS negotiates it. Without PIPEWAIT: in libcurl 8.23, requests that wait to see whether the first
        # connection can be shared keep waiting if it cannot, until another request ends.
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS if _HAS_HTTP2 else pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.PATH_AS_IS, 1),
        (pycurl.FOLLOWLOCATION, 0),
        (pycurl.ACCEPT_ENCODING, ""),  # every encoding that libcurl supports
        (pycurl.PROXY, options.proxy or ""),  # if unset, libcurl reads the environment
        (pycurl.NOPROXY, ""),
        (pycurl.CONNECTTIMEOUT_MS, _milliseconds(limits.connect)),
        (pycurl.TIMEOUT_MS, _milliseconds(limits.total)),
        (pycurl.MAXFILESIZE_LARGE, limits.body),
        (pycurl.DNS_CACHE_TIMEOUT, DNS_CACHE),
        (pycurl.MAXAGE_CONN, KEEP_ALIVE),
    ]


def _milliseconds(seconds: float) -> int:
    return max(1, min(math.ceil(seconds * 1000), _LONGEST_MS))


def _lines(headers: Mapping[str, str]) -> list[str]:
    # Without a line of its own, libcurl waits a second for 100 Continue before a large body.
    return [*(f"{name}: {value}" for name, value in headers.items()), "Expect:"]


def _headers(lines: Sequence[bytes]) -> CIMultiDict[str]:
    """Return the headers of the final response; those of interim responses and of a proxy precede them."""
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        if line.startswith(b"HTTP/"):
            headers.clear()
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            headers.add(name.strip(), value.strip())
    return headers
