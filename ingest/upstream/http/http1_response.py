"""One HTTP/1.1 response as it arrives, parsed strictly and within limits.

llhttp parses, by `httptools`. Ambiguous responses (two lengths, bytes after the end, an unknown coding) are errors, never documents. After
an error, and after a response that requires it, the connection is not used again.
"""

import re
from typing import Any

import httptools
from multidict import CIMultiDict

from ingest.upstream.http.content_coding import Compressed, decompressed
from ingest.upstream.http.transport import (
    INVALID_HTTP,
    NoDocument,
    NoResponse,
    TooLarge,
    has_document,
    keeps_connection,
)

# Bytes of the head, and of the trailers, of a response.
_HEAD_LIMIT = 64 * 1024
_MOST_INTERIM = 10
# Received bytes of a body from which on its parts, of up to 256 kB, take turns with parts of other bodies.
_HEAVY = 256 * 1024
_FOLD = re.compile(rb"\n[ \t]")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_USUAL_START = b"HTTP/1.1 2"
# The lengths of the names of headers that matter.
_LENGTHS = {len(b"content-length"), len(b"content-encoding"), len(b"transfer-encoding")}


class Malformed(Exception):
    """The response is not valid HTTP. The message gives the reason, without a byte of it."""


class ResponseParser:
    """Parses the responses of one connection, one after the other.

    Args:
        body_limit: most bytes of a decompressed body.
        error_body: see `Options`.

    Attributes:
        is_complete: whether the response to the request has ended.
        is_error: whether its head has arrived and announces no document.
        is_declined: whether nothing more of such a response is needed.
        can_continue: whether another request may be sent after it.
        has_begun: whether anything of a response has arrived.
    """

    def __init__(self, body_limit: int, error_body: int = 0) -> None:
        self._body_limit = body_limit
        self._error_body = error_body
        self._parser: Any = httptools.HttpResponseParser(self)
        # A client may accept line ends without CR (RFC 9112, section 2.2).
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._accepts_folded = False
        self.expect()

    def expect(self) -> None:
        """Expect the next response on the same connection."""
        self.is_complete = self.is_error = self.is_declined = self.can_continue = self.has_begun = False
        self._in_body = self._is_chunked = self._is_usual = False
        self.status = self._interim = self._size = self._overhead = 0
        self._length: int | None = None
        self._coding = b""
        self._body = bytearray()
        self.headers: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> None:
        """Parse received data.

        Raises:
            Malformed: it is no response, or more than one.
            TooLarge: its body exceeds the limit.
        """
        is_first = not self.has_begun
        if is_first:
            self.has_begun = True
            # Nearly all responses. The parser takes longer to report their version.
            self._is_usual = data.startswith(_USUAL_START)
        size, is_folded = self._size, False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise _cause_of(error) from None
        except httptools.HttpParserUpgrade:
            raise Malformed("the server switches to another protocol") from None
        except httptools.HttpParserError:
            if not is_first or self._accepts_folded or not _FOLD.search(data):
                raise Malformed(INVALID_HTTP) from None
            is_folded = True
        if is_folded:  # outside of the handler, for `_cause_of`
            self._accept_folded()
            self.feed(data)
            return
        # A head, a chunk's head or trailers may never end.
        self._overhead = 0 if self._size > size else self._overhead + len(data)
        if self._overhead > _HEAD_LIMIT:
            raise Malformed("the head or the trailers of the response are too long")

    def end_of_file(self) -> bool:
        """Return whether the connection's end is the response's, as for a body without a length."""
        if self._in_body and self._length is None and not self._is_chunked:
            self.is_complete = True
        return self.is_complete

    @property
    def is_heavy(self) -> bool:
        """Whether much of the body has arrived, see `_HEAVY`."""
        return self._size > _HEAVY

    def forget(self) -> None:
        """Drop the data, because the connection is closed. The parser refers to itself, and would be freed late."""
        self._body = bytearray()
        self.headers = []

    def document(self) -> bytes | Compressed:
        """Return the body of a complete response. Raises `NoDocument` if its status means that it contains none."""
        if self.is_error:
            raise NoDocument(self.status, self.named_headers(), self._text_of_error())
        body = bytes(self._body)
        return Compressed(self._coding, body, self._body_limit) if self._coding else body

    def _text_of_error(self) -> bytes:
        body = bytes(self._body)
        if not self._coding:
            return body
        try:
            return decompressed(self._coding, body, self._error_body)
        except (NoResponse, TooLarge):
            return b""

    def named_headers(self) -> CIMultiDict[str]:
        """Return the headers, by names of any case."""
        return CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers)

    # ---- called by llhttp ----

    def on_message_begin(self) -> None:
        """A response begins."""
        if self.is_complete:
            raise Malformed("there is data after the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or a trailer."""
        if self._in_body:
            return  # a trailer
        self.headers.append((name, value))
        if len(name) in _LENGTHS:
            self._note(name.lower(), value)

    def _note(self, name: bytes, value: bytes) -> None:
        match name:
            case b"content-length":
                self._length = int(value)
            case b"content-encoding":
                # Of several, none is supported.
                self._coding = b"?" if self._coding else value.strip().lower()
            case b"transfer-encoding":
                if self._is_chunked or value.strip().lower() != b"chunked":
                    raise Malformed("the transfer encoding of the response is not supported")
                self._is_chunked = True
            case _:
                pass

    def on_headers_complete(self) -> None:
        """The head has ended."""
        status = self.status = self._parser.get_status_code()
        if not self._is_usual:
            self._check_version()
        if status < 200:
            if status < 100 or status == 101:
                raise Malformed("the status of the response is not valid in HTTP, or was not requested")
            return
        self._in_body = True
        # With folded headers, the parser accepts any character in a header.
        if self._accepts_folded and any(name != name.strip() or _CONTROL.search(value) for name, value in self.headers):
            raise Malformed("a header of the response is not valid HTTP")
        if status != 200 and not has_document(status):
            self.is_error = True
            self.is_declined = not self._error_body
        elif self._length is not None and self._length > self._body_limit:
            raise TooLarge

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._size += len(part)
        if self.is_error:
            if not self.is_declined:
                self._body += part[: self._error_body - len(self._body)]
                self.is_declined = self._size > self._error_body
            return
        if self._size > self._body_limit:
            raise TooLarge
        self._body += part

    def on_message_complete(self) -> None:
        """The response has ended. It may have been an interim response."""
        if self._in_body:
            self.is_complete = True
            self.can_continue = self._parser.should_keep_alive() and (
                not self.is_error or keeps_connection(self.status)
            )
            return
        # An interim response: the final one follows.
        self._interim += 1
        if self._interim > _MOST_INTERIM:
            raise Malformed("there are too many interim responses")
        self._is_usual = False
        self.headers, self._length, self._coding, self._is_chunked = [], None, b"", False

    def _accept_folded(self) -> None:
        """Begin again, and accept headers of several lines from this server (RFC 9112, section 5.2)."""
        self._accepts_folded = True
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_headers=True)
        self.expect()

    def _check_version(self) -> None:
        version = self._parser.get_http_version()
        # Chunks from an HTTP/1.0 server are ambiguous (RFC 9112, section 6.1).
        if version not in ("1.1", "1.0") or (version == "1.0" and self._is_chunked):
            raise Malformed("the response is not valid HTTP/1.1")


def _cause_of(error: Exception) -> BaseException:
    """Return the exception of a callback. A variable of `feed` for it would keep the data in a reference cycle."""
    cause = error.__context__
    return cause if isinstance(cause, (Malformed, TooLarge)) else error
