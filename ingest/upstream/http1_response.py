"""One HTTP/1.1 response as it arrives: parsed strictly, within limits, decompressed.

llhttp parses, by `httptools`. Whatever is doubtful (two lengths, bytes after the end, an unknown coding) is an error and never a
document. After an error, and after a response that says so, the connection is not used again.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import httptools
from multidict import CIMultiDict

from ingest.upstream.transport import NoDocument, NoResponse, TooLarge, has_document

HEAD_LIMIT = 64 * 1024
"""Bytes of the head, and of the trailers, of a response."""
_MOST_INTERIM = 10
_NOTHING = b""


class Malformed(Exception):
    """The response is not what HTTP allows; the message says why, without a byte of it."""


class ResponseParser:
    """Parses the responses of one connection, one after the other.

    Args:
        body_limit: most bytes of a decompressed body.

    Attributes:
        is_complete: whether the response to the request has ended.
        is_declined: whether its head has arrived, and says that there is no document; what follows does not matter.
        can_continue: whether another request may be sent after it.
        has_begun: whether anything of a response has arrived.
    """

    def __init__(self, body_limit: int) -> None:
        self._body_limit = body_limit
        self.begin()

    def begin(self) -> None:
        """Expect a response from the start."""
        self._parser: Any = httptools.HttpResponseParser(self)
        self.expect()

    def expect(self) -> None:
        """Expect the next response on the same connection."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = self.is_declined = self.can_continue = self.has_begun = False
        self._head_bytes = 0
        self._in_body = False
        self._interim = 0
        self._length: int | None = None
        self._is_chunked = False
        self._coding = _NOTHING
        self._body: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Parse what has arrived.

        Raises:
            Malformed: it is no response, or more than one.
            TooLarge: its body is over the limit.
        """
        self.has_begun = True
        if not self._in_body:
            # Nothing else limits a head that does not end.
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            raise cause if isinstance(cause, (Malformed, TooLarge)) else error from None
        except httptools.HttpParserUpgrade:
            raise Malformed("the server switches to another protocol") from None
        except httptools.HttpParserError:
            if self.is_declined:
                return
            raise Malformed("the response is not valid HTTP") from None
        if not self._in_body and self._head_bytes > HEAD_LIMIT:
            raise Malformed("the head of the response is too long")

    def end_of_file(self) -> bool:
        """Return whether the connection's end is the response's, as for a body without a length."""
        if self._in_body and self._length is None and not self._is_chunked:
            self.is_complete = True
        return self.is_complete

    def document(self) -> bytes:
        """Return the body of a complete response.

        Raises:
            NoDocument: its status says that it has none.
            TooLarge: decompressed, it is over the limit.
            NoResponse: it is not compressed as its Content-Encoding says.
        """
        if self.is_declined:
            raise NoDocument(self.status, self.named_headers())
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return decompressed(self._coding, body, self._body_limit) if self._coding else body

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
        if self._in_body:  # a trailer
            self._head_bytes += len(name) + len(value)
            if self._head_bytes > HEAD_LIMIT:
                raise Malformed("the trailers of the response are too long")
            return
        self.headers.append((name, value))
        size = len(name)
        if size == 14:
            if name.lower() == b"content-length":
                self._length = int(value)
        elif size == 16:
            if name.lower() == b"content-encoding":
                # Of several, none is supported.
                self._coding = b"?" if self._coding else value.strip().lower()
        elif size == 17 and name.lower() == b"transfer-encoding":
            if self._is_chunked or value.strip().lower() != b"chunked":
                raise Malformed("the transfer encoding of the response is not supported")
            self._is_chunked = True

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self._in_body = True
        self._head_bytes = 0
        if self.status != 200 and not has_document(self.status):
            self.is_declined = True
        elif self._length is not None and self._length > self._body_limit:
            raise TooLarge

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        if self.is_declined:
            return
        self._size += len(part)
        if self._size > self._body_limit:
            raise TooLarge
        self._body.append(part)

    def on_message_complete(self) -> None:
        """The response has ended; it may have been an interim one."""
        if self.status >= 200:
            self.is_complete = True
            self.can_continue = self._parser.should_keep_alive()
            return
        # An interim response: the final one follows.
        self._interim += 1
        if self._interim > _MOST_INTERIM:
            raise Malformed("there are too many interim responses")
        self.headers, self._length, self._coding, self._is_chunked = [], None, _NOTHING, False


def decompressed(coding: bytes, body: bytes, limit: int) -> bytes:
    """Return a body without its content coding; `limit` is the most bytes of it.

    Raises:
        NoResponse: the coding is another one than we accept, or the body is not coded so.
        TooLarge: it is over the limit.
    """
    if coding == b"identity":
        return body
    if not body:
        return body
    try:
        match coding:
            case b"gzip" | b"x-gzip":
                return _gunzip(body, limit)
            case b"deflate":
                # zlib's format by the standard; some servers send it without its head.
                is_zlib = body[0] & 0x0F == 8 and len(body) > 1 and int.from_bytes(body[:2]) % 31 == 0
                return _inflated(body, limit, zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)[0]
            case _:
                pass
    except zlib.error:
        pass
    raise NoResponse("the response body cannot be read: it is not compressed as its Content-Encoding says")


def _gunzip(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    while body:
        part, body = _inflated(body, limit - sum(map(len, parts)), 16 + zlib.MAX_WBITS)
        parts.append(part)
    return b"".join(parts)


def _inflated(body: bytes, limit: int, window: int) -> tuple[bytes, bytes]:
    """Return what one compressed stream contains, and what follows it."""
    stream = zlib.decompressobj(window)
    content = stream.decompress(body, limit + 1)
    if len(content) > limit:
        raise TooLarge
    if not stream.eof:
        raise zlib.error
    return content, stream.unused_data


def head_of(method: str, target: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """Return the head of a request.

    Raises:
        ValueError: a part of it would not be a single line.
    """
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    if any(character in line for line in lines for character in "\r\n\0"):
        raise ValueError("a request has a line break in its target or a header")
    return "\r\n".join(lines).encode("latin-1")
