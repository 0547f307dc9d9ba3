"""Divides the response to a bulk request into the documents of its orders, byte for byte. Pure functions.

A response is a JSON array of documents, or an object in which a path leads to one. A document that is not an order, or has no readable
ID, does not affect the others.

A list may have far more elements than were requested. How many are built is bounded by the number of requested orders, or by `_SMALL`.
A list that cannot be read within that is rejected as a whole, and requested again in halves.
"""

from typing import Any

import msgspec

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.errors import ConfigurationFault, Fault, PermanentFault, TransientFault
from ingest.upstream.responses import is_truncated

_WHITESPACE = b" \t\r\n"
_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
# Bytes of which anything may be built: up to 60 times as many in memory.
_SMALL = 256 * 1024
# Elements of a list in addition to the requested orders: duplicates and unrequested orders.
_MORE = 100
_LONGEST_ID = 128
_NULL = msgspec.Raw(b"null")
# Such a response is inconclusive. The circuit breaker decides whether the API sends it to all requests, or to one.
UNRELATED = "the list endpoint has sent other orders than the requested ones"
CHECK = "check INGEST_UPSTREAM_BULK_URL and INGEST_UPSTREAM_BULK_ID"


class Listed(msgspec.Struct, frozen=True):
    """The content of one response.

    Attributes:
        documents: by order ID. Of several with one ID, the first.
        nameless: documents without a readable ID.
    """

    documents: dict[str, bytes]
    nameless: list[bytes]


class BulkResponseReader:
    """Reads responses of one API.

    Args:
        path: names of the members that lead to the list, separated by dots. If empty, the response is the list itself, or has
            exactly one member that is a list.
        id_path: the same for the ID within a document: text or an integer.
        size: orders in a request.
    """

    def __init__(self, path: str, id_path: str, size: int) -> None:
        self._path = path.split(".") if path else []
        self._at_path = _decoder(self._path, msgspec.Raw)
        self._id_path = id_path.split(".")
        self._one_id = _decoder(self._id_path, msgspec.Raw)
        self._most = 4 * size + _MORE
        self._count = 0
        document: Any = self._counted()
        self._ids = msgspec.json.Decoder(list[document])
        self._items = msgspec.json.Decoder(list[msgspec.Raw])
        self._members = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def read(self, body: bytes) -> Listed:
        """Divide a response.

        Raises:
            ConfigurationFault: it contains several lists, and no path leads to the right one.
            TransientFault: it is truncated, or has far more documents than were requested.
            PermanentFault: it is not JSON, contains no list, or contains too much.
        """
        self._count = 0
        try:
            found = self._list_in(body)
            ids, items = self._ids_in(found), self._items.decode(found)
        except _INVALID as error:
            if self._count > self._most:
                raise TransientFault(f"{UNRELATED}, more than {self._most}: {CHECK}") from None
            raise _fault_of(error, body) from None
        listed = Listed({}, [])
        for raw_id, item in zip(ids, items, strict=True):
            order_id, document = _text_of(raw_id), bytes(item)
            if order_id is None:
                listed.nameless.append(document)
            else:
                listed.documents.setdefault(order_id, document)
        return listed

    def _list_in(self, body: bytes) -> bytes | msgspec.Raw:
        if self._path:
            found = _inner(self._at_path.decode(body), len(self._path))
            if bytes(memoryview(found)[:1]) != b"[":
                raise msgspec.ValidationError(f"no list - at `$.{'.'.join(self._path)}`")
            return found
        if body.lstrip(_WHITESPACE)[:1] == b"[":
            return body
        lists = [raw for raw in self._members.decode(body).values() if bytes(memoryview(raw)[:1]) == b"["]
        if len(lists) > 1:
            raise ConfigurationFault(
                f"the response to a bulk request contains {len(lists)} lists: name the list of orders with `bulk_path`"
                " (INGEST_UPSTREAM_BULK_PATH)"
            )
        if not lists:
            raise msgspec.ValidationError("an object without a list: name it with INGEST_UPSTREAM_BULK_PATH")
        return lists[0]

    def _ids_in(self, found: bytes | msgspec.Raw) -> list[msgspec.Raw]:
        """The IDs of all documents, in their order, with `null` for a document without one."""
        self._count = 0
        try:
            return [_inner(each, len(self._id_path)) for each in self._ids.decode(found)]
        except msgspec.ValidationError:
            # An element may not be an object, or its ID may be unreadable. Then each is read separately.
            if self._count > self._most or len(memoryview(found)) > _SMALL:
                raise
        return [self._id_of(item) for item in self._items.decode(found)]

    def _id_of(self, item: msgspec.Raw) -> msgspec.Raw:
        try:
            return _inner(self._one_id.decode(item), len(self._id_path))
        except _INVALID:
            return _NULL

    def _counted(self) -> Any:
        """A type for documents, of which only the ID is read, and which may not be too many."""

        def count(_: msgspec.Struct) -> None:
            self._count += 1
            if self._count > self._most:
                raise ValueError(f"more than {self._most} documents")

        return _level(self._id_path, msgspec.Raw, {"__post_init__": count})


def _decoder(path: list[str], leaf: Any) -> Any:
    """A decoder that builds only the value at the path."""
    return msgspec.json.Decoder(_level(path, leaf, {}) if path else leaf)


def _level(path: list[str], leaf: Any, namespace: dict[str, Any]) -> Any:
    """A type that reads only the member that the path names, or `null` without it."""
    inner, missing = (_level(path[1:], leaf, {}) | None, None) if path[1:] else (leaf, _NULL)
    return msgspec.defstruct(
        "Level", [("inner", inner, missing)], rename={"inner": path[0]}, namespace=namespace, gc=False
    )


def _inner(value: Any, depth: int) -> msgspec.Raw:
    for _ in range(depth):
        if value is None:
            return _NULL
        value = value.inner
    found: msgspec.Raw = value
    return found


def _text_of(raw_id: msgspec.Raw) -> str | None:
    """An ID as text, or None if it is neither text nor an integer."""
    text = bytes(raw_id)
    if text[:1] != b'"':
        return text.decode() if len(text) <= _LONGEST_ID and text.removeprefix(b"-").isdigit() else None
    try:
        return msgspec.json.decode(text, type=str)
    except _INVALID:
        return None


def _fault_of(error: Exception, body: bytes) -> Fault:
    if "truncated" in str(error) or is_truncated(body):
        return TransientFault(f"the response is truncated after {len(body)} bytes", reason=RetryReason.TRUNCATED)
    # Errors of msgspec name types and paths. Others may quote the document.
    text = str(error) if isinstance(error, msgspec.DecodeError) else "nested too deeply, or not UTF-8"
    return PermanentFault(DeadReason.INVALID_ORDER, f"the response to a bulk request cannot be read: {text[:200]}")
