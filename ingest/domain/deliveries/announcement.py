"""The announcement of one order, with its ID and optionally its document and its origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ingest.domain.deliveries.entry_fields import DOCUMENT, EVENT_AT, EXPECTED_VERSION, ORDER_ID, ORIGIN, TRACEPARENT
from ingest.domain.fetch.request_headers import is_traceparent
from ingest.domain.orders.order import Order, parse_order_id

DOCUMENT_LIMIT = 4 * 1024 * 1024
# The HTTP API puts the name of a key before the 100 characters that a client may give.
_ORIGIN_LENGTH = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
UNKNOWN_VERSION = _EPOCH
"""The expected version of an order of which only the existence is known."""


class InvalidAnnouncement(ValueError):
    """An announcement that cannot be sent. The message names the invalid part, never its content."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """One order for the queue, validated on construction.

    Args:
        order_id: the order's ID.
        document: the order as JSON, at most 4 MiB, which the worker then stores without fetching it. Bytes and text are
            sent unchanged, a mapping or an `Order` is encoded.
        traceparent: the W3C trace context of the producer's request, which the worker sends to the external API.
        origin: the program or webhook that enqueues the order, up to 200 printable characters.
        event_at: when the state of the document came about, by the clock of its sender. Of two documents with the same `updated_at`,
            the later event wins.
        expected_version: the version of the order that the external API has already shown, or `UNKNOWN_VERSION`, for an order without a
            document. If it does not find the order, or sends an older version, the order is fetched again for a minute.

    Raises:
        InvalidOrderId: if the ID is not valid.
        InvalidAnnouncement: if another part is not valid.
    """

    order_id: str
    document: bytes | str | Mapping[str, Any] | Order | None = None
    traceparent: str | None = None
    origin: str | None = None
    event_at: datetime | None = None
    expected_version: datetime | None = None

    def __post_init__(self) -> None:
        parse_order_id(self.order_id)
        if self.document is not None:
            object.__setattr__(self, "document", _encoded(self.document))
        if self.traceparent is not None and not is_traceparent(self.traceparent):
            raise InvalidAnnouncement("the traceparent is not a W3C trace context")
        if self.origin is not None and not (self.origin.isprintable() and 0 < len(self.origin) <= _ORIGIN_LENGTH):
            raise InvalidAnnouncement(f"the origin is not 1 to {_ORIGIN_LENGTH} printable characters")
        for name, moment in (("time of the event", self.event_at), ("expected version", self.expected_version)):
            if moment is not None and moment.tzinfo is None:
                raise InvalidAnnouncement(f"the {name} has no time zone")

    def fields(self) -> dict[bytes, bytes]:
        """Return the fields of the stream entry."""
        given = {DOCUMENT: self.document, TRACEPARENT: self.traceparent, ORIGIN: self.origin}
        optional = {name: _as_bytes(value) for name, value in given.items() if value is not None}
        name, moment = (EXPECTED_VERSION, self.expected_version) if self.document is None else (EVENT_AT, self.event_at)
        if moment is not None and moment >= _EPOCH:
            optional[name] = b"%d" % ((moment - _EPOCH) // _MICROSECOND)
        return {ORDER_ID: self.order_id.encode(), **optional}


def _encoded(document: bytes | str | Mapping[str, Any] | Order) -> bytes:
    try:
        encoded = _as_bytes(document)
    except (TypeError, ValueError) as error:
        raise InvalidAnnouncement(f"the document cannot be encoded as JSON: {error}") from error
    if not 0 < len(encoded) <= DOCUMENT_LIMIT:
        raise InvalidAnnouncement(
            f"the document is {len(encoded):,} bytes long, but 1 to {DOCUMENT_LIMIT:,} are allowed"
        )
    return encoded


def _as_bytes(value: bytes | str | Mapping[str, Any] | Order) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case Order():
            return msgspec.json.encode(value)
        case _:
            # Sorted keys, so that the same content gives the same bytes.
            return msgspec.json.encode(dict(value), order="deterministic")
