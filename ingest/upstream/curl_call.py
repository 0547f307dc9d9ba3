"""One request by libcurl: a handle that is used again and again, and what it has received."""

import asyncio
import math
from collections.abc import Sequence

import pycurl

from ingest.upstream.curl_errors import OUR_OWN, UNREACHED, sentence
from ingest.upstream.transport import (
    DNS_CACHE,
    KEEP_ALIVE,
    Declined,
    NoAnswer,
    Options,
    TooLarge,
    TransportBroken,
    has_document,
)

# The options that say which certificates are trusted.
Trust = Sequence[tuple[int, str]]
# An error of libcurl: its number and text.
Problem = tuple[int, str]
Ended = asyncio.Future[Problem | None]

_LONGEST_MS = 2**31 - 1
# Redirects are not libcurl's to follow; this is for the day on which an address comes from elsewhere.
_HTTP = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
_HAS_HTTP2 = bool(pycurl.version_info()[4] & pycurl.VERSION_HTTP2)


class Call:
    """One reusable request.

    Attributes:
        curl: its handle.
        ended: what became of the running request: None if libcurl is content with it.
        marks: how much had come when somebody last looked.
        heard_at: when something new had come by then, in the loop's time.
        is_sent: whether the request had gone out by then.
    """

    __slots__ = (
        "_body", "_getinfo", "_headers", "_limit", "_overflown", "_set", "_size", "curl", "ended", "heard_at", "is_sent", "marks",
    )  # fmt: skip

    def __init__(self, options: Options, trust: Trust) -> None:
        self.curl = curl = pycurl.Curl()
        # A handle looks its attributes up among all constants of libcurl first: what every request needs is kept.
        self._set = curl.setopt
        self._getinfo = curl.getinfo
        self._limit = options.limits.body
        self._body: list[bytes] = []
        self._headers: list[bytes] = []
        self._size = 0
        self._overflown = False
        self.ended: Ended
        self.marks = (0, 0)
        self.heard_at = 0.0
        self.is_sent = False
        for option, value in [*_settings(options), *trust]:
            curl.setopt(option, value)
        curl.setopt(pycurl.HEADERFUNCTION, self._headers.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._receive)

    def aim(self, url: str, ended: Ended) -> None:
        """Get ready for a request."""
        self._set(pycurl.URL, url.encode())
        self.ended = ended
        self.heard_at = 0.0
        self.is_sent = False

    def clear(self) -> None:
        """Forget what came: it may be large, and the next request may be long in coming."""
        self._headers.clear()
        self._body.clear()
        self._size = 0
        self._overflown = False

    def body(self, problem: Problem | None) -> bytes:
        """What the request that has ended in `problem` brought, see `Transport.get`."""
        status = self._getinfo(pycurl.RESPONSE_CODE)
        if problem is None and has_document(status) and (self._body or self._has_whole_head()):
            return self._body[0] if len(self._body) == 1 else b"".join(self._body)
        raise self._failure(status, problem)

    def is_silent(self, now: float, patience: float) -> bool:
        """Whether nothing came for `patience` seconds, as far as one can tell by looking now and then."""
        marks = len(self._headers), self._size
        self.is_sent = self.is_sent or self._is_sent()
        if marks != self.marks or not self.is_sent or self.heard_at == 0.0:
            self.marks, self.heard_at = marks, now
        return now - self.heard_at >= patience

    def _receive(self, chunk: bytes) -> int | None:
        # Before 8.4, libcurl knew only announced lengths, and before 8.20 it did not count what it had unpacked.
        self._size += len(chunk)
        if self._size > self._limit:
            self._overflown = True
            return 0  # less than what came: libcurl breaks off
        self._body.append(chunk)
        return None

    def _has_whole_head(self) -> bool:
        """Whether the empty line was there: libcurl is content with the end of the connection instead."""
        return bool(self._headers) and self._headers[-1].isspace()

    def _is_sent(self) -> bool:
        # libcurl's times of connecting are set even if it could not.
        return bool(self._getinfo(pycurl.REQUEST_SIZE))

    def _failure(self, status: int, problem: Problem | None) -> Exception:
        number, text = problem or (pycurl.E_OK, "")
        connect_status = self._getinfo(pycurl.HTTP_CONNECTCODE)
        if connect_status == 407:
            return Declined(407, {})
        has_status = (problem is None or status >= 300) and self._has_whole_head()
        if has_status and not has_document(status):
            # It says enough, even if the rest of the answer did not come.
            return Declined(status, _headers(self._headers))
        if self._overflown or number == pycurl.E_FILESIZE_EXCEEDED:
            return TooLarge()
        if number == pycurl.E_OPERATION_TIMEDOUT:
            is_sent = self._is_sent()
            return NoAnswer("while waiting for it" if is_sent else "while connecting", in_time=False, reached=is_sent)
        if number in OUR_OWN:
            return TransportBroken(sentence(number, text))
        if connect_status >= 300:
            # libcurl has its own number for that by now; it had that of a broken connection.
            return NoAnswer(f"the proxy refuses the connection with HTTP {connect_status}", reached=False)
        text = sentence(number, text) if problem is not None else "the answer ended before its body"
        return NoAnswer(text, reached=number not in UNREACHED)


def _settings(options: Options) -> list[tuple[int, int | str | list[str]]]:
    limits = options.limits
    return [
        (pycurl.NOSIGNAL, 1),
        (pycurl.PROTOCOLS, _HTTP),
        # HTTP/2 where TLS offers it. Without PIPEWAIT: libcurl 8.23 lets what waited for a first connection to tell whether
        # it can be shared wait on when it cannot, until a request ends.
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS if _HAS_HTTP2 else pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.PATH_AS_IS, 1),
        (pycurl.FOLLOWLOCATION, 0),
        (pycurl.HTTPHEADER, [f"{name}: {value}" for name, value in options.headers.items()]),
        (pycurl.ACCEPT_ENCODING, ""),  # all that libcurl can unpack
        (pycurl.PROXY, options.proxy or ""),  # unset, libcurl would look into the environment
        (pycurl.NOPROXY, ""),
        (pycurl.CONNECTTIMEOUT_MS, _milliseconds(limits.connect)),
        (pycurl.TIMEOUT_MS, _milliseconds(limits.total)),
        (pycurl.MAXFILESIZE_LARGE, limits.body),
        (pycurl.DNS_CACHE_TIMEOUT, DNS_CACHE),
        (pycurl.MAXAGE_CONN, KEEP_ALIVE),
    ]


def _milliseconds(seconds: float) -> int:
    return max(1, min(math.ceil(seconds * 1000), _LONGEST_MS))


def _headers(lines: Sequence[bytes]) -> dict[str, str]:
    """The headers of the last answer: those of interim answers, and of a proxy, come before it."""
    headers: dict[str, str] = {}
    for line in lines:
        if line.startswith(b"HTTP/"):
            headers.clear()
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            headers.setdefault(name.strip().title(), value.strip())
    return headers
