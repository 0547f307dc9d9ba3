"""Between the fields of a stream entry and a `Delivery`."""

from collections.abc import Mapping, Sequence

from ingest.domain.delivery import Delivery
from ingest.domain.order import InvalidOrderId, parse_order_id

ORDER_ID = b"order_id"
ENQUEUED_AT = b"enqueued_at"
ATTEMPT = b"attempt"
DOCUMENT = b"document"


def to_delivery(entry_id: bytes, fields: Mapping[bytes, bytes], count: int) -> Delivery:
    """The delivery of an entry; what a foreign producer wrote wrong is read as not given."""
    name = entry_id.decode()
    milliseconds = _whole_number(fields.get(ENQUEUED_AT), digits=13) or int(name.partition("-")[0])
    attempt = _whole_number(fields.get(ATTEMPT), digits=6) or 1
    order_id = _order_id(fields.get(ORDER_ID))
    return Delivery(name, order_id, milliseconds / 1000, attempt, count, fields.get(DOCUMENT), fields)


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """The fields of an entry as a script returns them: name, value, name, value."""
    parts = iter(flat)
    return dict(zip(parts, parts, strict=True))


def flat(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """The fields of an entry as a script takes them."""
    return [part for pair in fields.items() for part in pair]


def _order_id(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    try:
        return parse_order_id(raw.decode("ascii"))
    except (InvalidOrderId, UnicodeDecodeError):
        return None


def _whole_number(raw: bytes | None, digits: int) -> int | None:
    # The bound keeps a time within what a date can say (13 digits of ms: the year 2286), an attempt within an integer.
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= digits else None
