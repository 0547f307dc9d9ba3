"""Divides the answer to a bulk request into the documents of its orders, byte for byte. Pure functions.

An answer is a JSON array of documents, or an object in which a path leads to one. A document that is no order, or has no readable ID,
is no obstacle to the others.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from ingest.domain.delivery import DeadReason, RetryReason
from ingest.domain.errors import Fault, PermanentFault, TransientFault
from ingest.upstream.responses import is_truncated

_WHITESPACE = b" \t\r\n"
_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)


@dataclass(frozen=True, slots=True)
class Listed:
    """What one answer contains.

    Attributes:
        documents: by order ID; of several with one ID, the first.
        nameless: what has no readable ID.
    """

    documents: dict[str, bytes]
    nameless: list[bytes]


class AnswerReader:
    """Reads answers of one API.

    Args:
        path: names of the members that lead to the list, separated by dots; if empty, the answer is the list itself, or has
            exactly one member that is a list.
        id_path: the same for the ID within a document: text or an integer.
    """

    def __init__(self, path: str, id_path: str) -> None:
        self._path = path
        self._lists = _decoder(path, list[msgspec.Raw])
        self._ids = _decoder(id_path, str | int)
        self._id_depth = id_path.count(".") + 1
        self._members = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._items = msgspec.json.Decoder(list[msgspec.Raw])

    def read(self, body: bytes) -> Listed:
        """Divide an answer.

        Raises:
            TransientFault: it is truncated.
            PermanentFault: it is not JSON, or has no list.
        """
        try:
            items = self._list_in(body)
        except _INVALID as error:
            raise _fault_of(error, body) from None
        listed = Listed({}, [])
        for item in items:
            document = bytes(item)
            order_id = self._id_of(document)
            if order_id is None:
                listed.nameless.append(document)
            else:
                listed.documents.setdefault(order_id, document)
        return listed

    def _list_in(self, body: bytes) -> list[msgspec.Raw]:
        if self._path:
            items: list[msgspec.Raw] = _inner(self._lists.decode(body), self._path.count(".") + 1)
            return items
        if body.lstrip(_WHITESPACE)[:1] == b"[":
            return self._items.decode(body)
        lists = [raw for raw in self._members.decode(body).values() if bytes(memoryview(raw)[:1]) == b"["]
        if len(lists) != 1:
            raise msgspec.ValidationError(
                f"an object with {len(lists)} lists: name the one with INGEST_UPSTREAM_BULK_PATH"
            )
        return self._items.decode(lists[0])

    def _id_of(self, document: bytes) -> str | None:
        try:
            return str(_inner(self._ids.decode(document), self._id_depth))
        except _INVALID:
            return None


def _decoder(path: str, leaf: Any) -> Any:
    """A decoder that looks only at what the path leads to."""
    kind = leaf
    for name in reversed(path.split(".")) if path else ():
        kind = msgspec.defstruct("Level", [("inner", kind)], rename={"inner": name}, gc=False)
    return msgspec.json.Decoder(kind)


def _inner(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = value.inner
    return value


def _fault_of(error: Exception, body: bytes) -> Fault:
    if "truncated" in str(error) or is_truncated(body):
        return TransientFault(f"the answer is truncated after {len(body)} bytes", reason=RetryReason.TRUNCATED)
    # Errors of msgspec name types and paths; others may quote the document.
    text = str(error) if isinstance(error, msgspec.DecodeError) else "nested too deeply, or not UTF-8"
    return PermanentFault(DeadReason.INVALID_ORDER, f"the answer to a bulk request cannot be read: {text[:200]}")
