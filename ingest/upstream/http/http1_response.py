"""One HTTP/1.1 response as it arrives, parsed strictly and within limits.

llhttp parses, by `httptools`. Ambiguous responses (two lengths, bytes after the end, an unknown coding) are errors, never documents. After
an error, and after a response that requires it, the connection is not used again.
"""

import zlib
from typing import Any

import httptools
from multidict import CIMultiDict

from ingest.upstream.http.transport import NoDocument, NoResponse, TooLarge, has_document, keeps_connection

# Bytes of the head, and of the trailers, of a response.
_HEAD_LIMIT = 64 * 1024
_MOST_INTERIM = 10
_USUAL_START = b"HTTP/1.1 2"
# The lengths of the names of headers that matter.
_LENGTHS = {len(b"content-length"), len(b"content-encoding"), len(b"transfer-encoding")}
# Members of a gzip body, each compressed separately. Their number is limited, because the smallest have 20 bytes and no content.
_MOST_PARTS = 100
_GZIP = 16 + zlib.MAX_WBITS
_WINDOWS = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}


class Malformed(Exception):
    """The response is not valid HTTP. The message gives the reason, without a byte of it."""


class ResponseParser:
    """Parses the responses of one connection, one after the other.

    Args:
        body_limit: most bytes of a decompressed body.

    Attributes:
        is_complete: whether the response to the request has ended.
        is_declined: whether its head has arrived and announces no document.
        can_continue: whether another request may be sent after it.
        has_begun: whether anything of a response has arrived.
    """

    def __init__(self, body_limit: int) -> None:
        self._body_limit = body_limit
        self._parser: Any = httptools.HttpResponseParser(self)
        self.expect()

    def expect(self) -> None:
        """Expect the next response on the same connection."""
        self.is_complete = self.is_declined = self.can_continue = self.has_begun = False
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
        if not self.has_begun:
            self.has_begun = True
            # Nearly all responses. The parser takes longer to report their version.
            self._is_usual = data.startswith(_USUAL_START)
        size = self._size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise _cause_of(error) from None
        except httptools.HttpParserUpgrade:
            raise Malformed("the server switches to another protocol") from None
        except httptools.HttpParserError:
            raise Malformed("the response is not valid HTTP") from None
        # A head, a chunk's head or trailers may never end.
        self._overhead = 0 if self._size > size else self._overhead + len(data)
        if self._overhead > _HEAD_LIMIT:
            raise Malformed("the head or the trailers of the response are too long")

    def end_of_file(self) -> bool:
        """Return whether the connection's end is the response's, as for a body without a length."""
        if self._in_body and self._length is None and not self._is_chunked:
            self.is_complete = True
        return self.is_complete

    def forget(self) -> None:
        """Drop the data, because the connection is closed. The parser refers to itself, and would be freed late."""
        self._body = bytearray()
        self.headers = []

    def document(self) -> bytes:
        """Return the body of a complete response.

        Raises:
            NoDocument: its status means that it contains none.
            TooLarge: decompressed, it exceeds the limit.
            NoResponse: it is not compressed as its Content-Encoding declares.
        """
        if self.is_declined:
            raise NoDocument(self.status, self.named_headers())
        body = bytes(self._body)
        return _decompressed(self._coding, body, self._body_limit) if self._coding else body

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
        if status != 200 and not has_document(status):
            self.is_declined = True
        elif self._length is not None and self._length > self._body_limit:
            raise TooLarge

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._size += len(part)
        if self.is_declined:
            return
        if self._size > self._body_limit:
            raise TooLarge
        self._body += part

    def on_message_complete(self) -> None:
        """The response has ended. It may have been an interim response."""
        if self._in_body:
            self.is_complete = True
            self.can_continue = self._parser.should_keep_alive() and (
                not self.is_declined or keeps_connection(self.status)
            )
            return
        # An interim response: the final one follows.
        self._interim += 1
        if self._interim > _MOST_INTERIM:
            raise Malformed("there are too many interim responses")
        self._is_usual = False
        self.headers, self._length, self._coding, self._is_chunked = [], None, b"", False

    def _check_version(self) -> None:
        version = self._parser.get_http_version()
        # Chunks from an HTTP/1.0 server are ambiguous (RFC 9112, section 6.1).
        if version not in ("1.1", "1.0") or (version == "1.0" and self._is_chunked):
            raise Malformed("the response is not valid HTTP/1.1")


def _cause_of(error: Exception) -> BaseException:
    """Return the exception of a callback. A variable of `feed` for it would keep the data in a reference cycle."""
    cause = error.__context__
    return cause if isinstance(cause, (Malformed, TooLarge)) else error


def _decompressed(coding: bytes, body: bytes, limit: int) -> bytes:
    """Return a body without its content coding, the value of Content-Encoding in lower case. `limit` is its maximum size in bytes.

    Raises:
        NoResponse: the coding is another one than we accept, or the body is not coded so.
        TooLarge: it exceeds the limit.
    """
    if not body or coding == b"identity":
        return body
    content = b""
    try:
        for _ in range(_MOST_PARTS if coding in _WINDOWS else 0):
            stream = zlib.decompressobj(_WINDOWS[coding])
            content += stream.decompress(body, limit - len(content) + 1)
            if len(content) > limit:
                raise TooLarge
            body = stream.unused_data
            if not stream.eof:
                break
            if not body:
                return content
    except zlib.error:
        pass
    raise NoResponse("the response body cannot be read: it is not compressed as its Content-Encoding declares")
