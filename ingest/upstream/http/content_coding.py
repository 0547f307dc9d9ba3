"""Decompresses the body of a response, within a limit. Pure functions."""

import zlib

from ingest.upstream.http.transport import NoResponse, TooLarge

# Members of a gzip body, each compressed separately. Their number is limited, because the smallest have 20 bytes and no content.
_MOST_PARTS = 100
_GZIP = 16 + zlib.MAX_WBITS


def decompressed(coding: bytes, body: bytes, limit: int) -> bytes:
    """Return a body without its content coding. `limit` is its maximum size in bytes.

    Args:
        coding: the value of Content-Encoding, in lower case.
        body: as received.
        limit: of the result, in bytes.

    Raises:
        NoResponse: the coding is another one than we accept, or the body is not coded so.
        TooLarge: it exceeds the limit.
    """
    if not body or coding == b"identity":
        return body
    try:
        match coding:
            case b"gzip" | b"x-gzip":
                return _gunzip(body, limit)
            case b"deflate":
                # zlib's format by the standard. Some servers send it without its header.
                is_zlib = body[0] & 0x0F == 8 and len(body) > 1 and int.from_bytes(body[:2]) % 31 == 0
                return _inflated(body, limit, zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)[0]
            case _:
                pass
    except zlib.error:
        pass
    raise NoResponse("the response body cannot be read: it is not compressed as its Content-Encoding declares")


def _gunzip(body: bytes, limit: int) -> bytes:
    content = b""
    for _ in range(_MOST_PARTS):
        part, body = _inflated(body, limit - len(content), _GZIP)
        content += part
        if not body:
            return content
    raise zlib.error


def _inflated(body: bytes, limit: int, window: int) -> tuple[bytes, bytes]:
    """Return the content of one compressed stream, and the data after it."""
    stream = zlib.decompressobj(window)
    content = stream.decompress(body, limit + 1)
    if len(content) > limit:
        raise TooLarge
    if not stream.eof:
        raise zlib.error
    return content, stream.unused_data
