"""Isolates the elements of a page that are not JSON, for example because of `NaN`, so that the others can be read. Pure."""

import re

import msgspec

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_OPENING, _CLOSING = (b"{", b"["), (b"}", b"]")


def isolate_broken(body: bytes, steps: int, id_key: str) -> bytes:
    """Return a page with an array in place of each broken element. The array contains its ID, if it can be found.

    Args:
        body: a page that is not JSON.
        steps: length of the path of the elements. 0 for the body itself, or its only array.
        id_key: the name of the ID in an element.
    """
    parts: list[bytes] = []
    level, begin, done = 0, 0, 0
    depth = 1 if body.lstrip()[:1] == b"[" else max(1, steps) + 1
    for token in _TOKEN.finditer(body):
        if token[0] in _OPENING:
            begin = token.start() if level == depth else begin
            level += 1
        elif token[0] in _CLOSING:
            level -= 1
            element = body[begin : token.end()]
            if level == depth and element[:1] == b"{" and not _is_json(element):
                parts += [body[done:begin], msgspec.json.encode(_ids(element, id_key))]
                done = token.end()
    return b"".join([*parts, body[done:]])


def isolated_id(element: bytes | msgspec.Raw) -> str:
    """Return the ID that stands in place of a broken element, or an empty text."""
    try:
        return "".join(msgspec.json.decode(element, type=list[str])[:1])
    except (msgspec.DecodeError, RecursionError):
        return ""


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _ids(element: bytes, key: str) -> list[str]:
    """Return the ID of an element, outside of the objects and arrays in it."""
    parts: list[bytes] = []
    level, done = 0, 0
    for token in _TOKEN.finditer(element):
        if token[0] in _OPENING:
            level += 1
            if level == 2:
                parts.append(element[done : token.start()])
        elif token[0] in _CLOSING:
            level -= 1
            done = token.end() if level == 1 else done
    own = b"".join([*parts, element[done:]])
    found = re.search(rb'"%s"\s*:\s*"?([^"\\,{}\s]+)' % re.escape(key.encode()), own)
    return [] if found is None else [found[1].decode(errors="replace")]
