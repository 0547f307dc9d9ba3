"""Checks and encodes the orders of a producer, and divides them into parts that are accepted completely or not at all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import count
from math import ceil
from typing import TypeVar

import msgspec

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.entry_fields import ORDER_ID
from ingest.domain.orders.order import parse_order_id
from ingest.queue.produce.producer_errors import InvalidIdempotencyKey

# The most orders that one script adds, and the most bytes unless a single order is larger. They take Redis about 1 ms.
BATCH = 500
BATCH_BYTES = 1024 * 1024
_KEY_LENGTH = 200
_LONGEST_COALESCING = 86_400.0
# The script takes an argument for an ID if its first byte is below this, and otherwise for a MessagePack array.
_NOT_ASCII = 0x80
# The approximate cost of an order in addition to its bytes.
OVERHEAD = 100

Orders = str | Announcement | Iterable[str | Announcement]
_T = TypeVar("_T")


class Submission(msgspec.Struct, frozen=True, gc=False):
    """Orders that are accepted in one step, all or none.

    Attributes:
        orders: The arguments of the script, one for each order.
        size: Bytes, roughly.
        key: The idempotency key, or None if there is none.
        digest: The digest of the orders, if there is a key.
        coalesce: Milliseconds for which an order that waits is not queued again. 0 for never.
        waiting: The IDs of the orders without a document, with `coalesce`.
        counts_repeats: Whether the orders count as duplicates if they were sent before, under the key.
        given: The orders as the caller has given them.
    """

    orders: Sequence[str | bytes]
    size: int
    key: str | None = None
    digest: str = ""
    coalesce: int = 0
    waiting: Sequence[str] = ()
    counts_repeats: bool = False
    given: Sequence[str | Announcement] = ()

    @property
    def is_plain(self) -> bool:
        """Whether each of its orders is added, whatever was added before."""
        return self.key is None and not self.coalesce


def listed_orders(orders: Orders) -> list[str | Announcement]:
    """The list of a call's orders. An iterator runs here."""
    return [orders] if isinstance(orders, str | Announcement) else list(orders)


def checked_orders(orders: Orders, key: str | None) -> list[str | Announcement]:
    """The list of a call's orders.

    Raises:
        InvalidOrderId: If one of the IDs is not valid.
        InvalidIdempotencyKey: If the key is not valid.
    """
    if key is not None and not (key.isprintable() and 0 < len(key) <= _KEY_LENGTH):
        raise InvalidIdempotencyKey(f"an idempotency key is 1 to {_KEY_LENGTH} printable characters")
    listed = listed_orders(orders)
    for order in listed:
        if isinstance(order, str):
            parse_order_id(order)
    return listed


def submissions(
    orders: Sequence[str | Announcement],
    key: str | None,
    most: int,
    coalesce: float = 0.0,
    *,
    counts_repeats: bool = False,
) -> list[Submission]:
    """The parts, of at most `most` orders each, of checked orders.

    With an idempotency key, each part after the first uses the key of the caller with a number.
    """
    milliseconds = _milliseconds(coalesce) if coalesce else 0
    return [
        Submission(
            [_argument(order) for order in part],
            sum(map(_size, part)),
            _numbered(key, number),
            "" if key is None else digest_of(part),
            milliseconds,
            _waiting(part) if milliseconds else (),
            counts_repeats,
            part,
        )
        for number, part in zip(count(), parts_of(orders, most, _size), strict=False)
    ]


def _milliseconds(coalesce: float) -> int:
    if not 0 <= coalesce <= _LONGEST_COALESCING:
        raise ValueError(f"coalesce must be 0 to {_LONGEST_COALESCING:.0f} seconds")
    return ceil(coalesce * 1000)


def _waiting(orders: Sequence[str | Announcement]) -> list[str]:
    # A document is content, and the waiting one may be different.
    return [
        order if isinstance(order, str) else order.order_id
        for order in orders
        if isinstance(order, str) or order.document is None
    ]


def _numbered(key: str | None, number: int) -> str | None:
    # The separator cannot be printed, so no caller's key is the key of another's part.
    return f"{key}\x1f{number}" if key is not None and number else key


def most_in_a_step(backlog_limit: int) -> int:
    """Return the most orders that are accepted in one step, because more than the limit would never fit."""
    return min(BATCH, backlog_limit) if backlog_limit else BATCH


def parts_of(items: Sequence[_T], most: int, size_of: Callable[[_T], int]) -> Iterator[Sequence[_T]]:
    """The items, divided so that each part is accepted in one step."""
    start = size = 0
    for at, item in enumerate(items):
        size += size_of(item)
        if at > start and (at - start == most or size > BATCH_BYTES):
            yield items[start:at]
            start, size = at, size_of(item)
    if items:
        yield items[start:]


def _size(order: str | Announcement) -> int:
    document = None if isinstance(order, str) else order.document
    return OVERHEAD + (len(document) if isinstance(document, bytes) else 0)


def _argument(order: str | Announcement) -> str | bytes:
    if isinstance(order, str) and order[0].isascii():
        return order
    fields = {ORDER_ID: order.encode()} if isinstance(order, str) else order.fields()
    if len(fields) == 1 and fields[ORDER_ID][0] < _NOT_ASCII:
        return fields[ORDER_ID]
    parts = [part for field in fields.items() for part in field]
    # A MessagePack array of up to 15 texts of 32-bit length, because Redis' own decoder supports no type for bytes.
    return bytes([0x90 | len(parts)]) + b"".join(b"\xdb" + len(part).to_bytes(4, "big") + part for part in parts)


def digest_of(orders: Sequence[str | Announcement]) -> str:
    """Tells other orders from the same ones sent again, whose trace context may be another."""
    digest = blake2b(digest_size=12)
    for order in orders:
        name, document = (order, None) if isinstance(order, str) else (order.order_id, order.document)
        # A blank ends the ID here. No ID contains the character that stands for a blank within one.
        name = name.replace(" ", "\n")
        content = document if isinstance(document, bytes) else b""
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()
