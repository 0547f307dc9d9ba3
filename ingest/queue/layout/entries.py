"""Between the fields of a stream entry and a `Delivery`."""

from collections.abc import Mapping, Sequence

import msgspec

from ingest.domain.deliveries.delivery import LATEST_MS, Delivery, EntryRef
from ingest.domain.deliveries.entry_fields import ATTEMPT, DOCUMENT, ENQUEUED_AT, KNOWN, ORDER_ID, PACKED
from ingest.domain.orders.order import InvalidOrderId, parse_order_id

_MOST_FIELDS = 500


def to_delivery(stream: str, entry_id: bytes, fields: Mapping[bytes, bytes], count: int) -> Delivery:
    """The delivery of an entry. Invalid fields of a foreign producer are ignored."""
    name = entry_id.decode()
    added_ms = min(int(name.partition("-")[0]), LATEST_MS)
    if len(fields) == 1 and ORDER_ID in fields:
        # Nearly all, because our producers write no other field.
        return Delivery(EntryRef(stream, name), _order_id(fields[ORDER_ID]), added_ms / 1000, 1, count, None, fields)
    if PACKED in fields:
        fields = unpacked_fields(fields)
    milliseconds = _whole_number(fields.get(ENQUEUED_AT), digits=13) or added_ms
    attempt = _whole_number(fields.get(ATTEMPT), digits=6) or 1
    order_id = _order_id(fields.get(ORDER_ID))
    entry = EntryRef(stream, name)
    return Delivery(entry, order_id, milliseconds / 1000, attempt, count, fields.get(DOCUMENT), fields)


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """The fields of an entry as a script returns them: name, value, name, value."""
    if len(flat) == 2:
        return {flat[0]: flat[1]}
    parts = iter(flat)
    return dict(zip(parts, parts, strict=True))


def flat(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """The fields of an entry as a script takes them. Most fields of a wide entry are packed into one."""
    if len(fields) > _MOST_FIELDS:
        rest = [part for name, value in fields.items() if name not in KNOWN for part in (name, value)]
        fields = {name: value for name, value in fields.items() if name in KNOWN} | {
            PACKED: msgspec.msgpack.encode(rest)
        }
    return [part for pair in fields.items() for part in pair]


def unpacked_fields(fields: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """All fields of a packed entry. A field that `flat` has not packed stays as it is."""
    try:
        packed = pairs(unpacked(fields[PACKED]))
    except (msgspec.DecodeError, ValueError):
        return fields
    return packed | {name: value for name, value in fields.items() if name != PACKED}


def unpacked(packed: bytes) -> list[bytes]:
    """The parts of a MessagePack array of strings, as text or bytes. The text need not be UTF-8.

    Raises:
        msgspec.DecodeError: if it is something else.
    """
    return [_part(bytes(part)) for part in msgspec.msgpack.decode(packed, type=list[msgspec.Raw])]


def _part(part: bytes) -> bytes:
    # The length is in the first byte (a short text), or in the 1, 2 or 4 bytes after it.
    kind = part[0]
    if 0xA0 <= kind <= 0xBF:
        return part[1:]
    if kind not in _HEADER:
        raise msgspec.DecodeError("neither text nor bytes")
    return part[_HEADER[kind] :]


_HEADER = {0xD9: 2, 0xDA: 3, 0xDB: 5, 0xC4: 2, 0xC5: 3, 0xC6: 5}


def _order_id(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    try:
        return parse_order_id(raw.decode("ascii"))
    except (InvalidOrderId, UnicodeDecodeError):
        return None


def _whole_number(raw: bytes | None, digits: int) -> int | None:
    # The limit keeps a time within the range of dates (13 digits of ms: the year 2286), and an attempt within an integer.
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= digits else None
