"""Decompresses the body of a response, by its Content-Encoding."""

import asyncio
import zlib
from typing import NamedTuple

from ingest.upstream.http.transport import NoResponse, TooLarge

# Members of a gzip body, each compressed separately. Their number is limited, because the smallest have 20 bytes and no content.
_MOST_PARTS = 100
_GZIP = 16 + zlib.MAX_WBITS
# Values of Content-Encoding that do not change the body. Some servers write its charset there.
_NO_CODINGS = frozenset({
    b"identity", b"none", b"binary", b"8bit", b"utf-8", b"utf8", b"us-ascii", b"ascii", b"iso-8859-1", b"windows-1252",
})  # fmt: skip
_WINDOWS = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}
# Bytes that are decompressed in the event loop, which takes 0.4 ms. A body of 4 kB may contain 4 MB, which take 10 to 30 ms.
_LIGHT = 128 * 1024


class Compressed(NamedTuple):
    """A body before its decompression. For the fields, see `decompressed`."""

    coding: bytes
    body: bytes
    limit: int

    async def content(self, turn: asyncio.Lock) -> bytes:
        """Decompress it, as `decompressed` does. A large one waits for its turn, and is decompressed in a thread, without the GIL."""
        try:
            return decompressed(self.coding, self.body, min(self.limit, _LIGHT))
        except TooLarge:
            if self.limit <= _LIGHT:
                raise
        async with turn:
            return await asyncio.to_thread(decompressed, *self)


def decompressed(coding: bytes, body: bytes, limit: int) -> bytes:
    """Return a body without its content coding, the value of Content-Encoding in lower case. `limit` is its maximum size in bytes.

    Raises:
        NoResponse: the coding is another one than we accept, or the body is not coded so.
        TooLarge: it exceeds the limit.
    """
    if not body or coding in _NO_CODINGS:
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
