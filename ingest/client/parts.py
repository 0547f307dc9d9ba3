"""Divides the IDs of a call, or of a stream, into parts that are sent with one request each."""

import uuid
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from itertools import islice

import msgspec

from ingest.domain.orders.order import parse_order_id
from ingest.queue.produce.producer_errors import InvalidIdempotencyKey

# As many as the API takes in one JSON body.
MOST_IDS = 10_000
_KEY_LENGTH = 180


def checked_ids(order_ids: str | Iterable[str]) -> list[str]:
    """The IDs.

    Raises:
        InvalidOrderId: If one of them is not valid.
    """
    listed = [order_ids] if isinstance(order_ids, str) else list(order_ids)
    for order_id in listed:
        parse_order_id(order_id)
    return listed


def ndjson(order_ids: Iterable[str]) -> bytes:
    """The IDs as lines, each a JSON string.

    Raises:
        InvalidOrderId: If one of them is not valid.
    """
    return b"".join(msgspec.json.encode(parse_order_id(order_id)) + b"\n" for order_id in order_ids)


def new_key(given: str | None) -> str:
    """Return the idempotency key of a call, which is the key of the caller or a new one.

    Raises:
        InvalidIdempotencyKey: If the caller's cannot be sent in a header, with room for the number of a part.
    """
    if given is None:
        return str(uuid.uuid4())
    if not (given.isascii() and given.isprintable() and 0 < len(given) <= _KEY_LENGTH):
        raise InvalidIdempotencyKey(f"an idempotency key is 1 to {_KEY_LENGTH} printable ASCII characters")
    return given


def part_key(key: str, number: int) -> str:
    """Return the key of a part. The first part uses the key of the call."""
    return f"{key}/{number}" if number else key


def checked_size(size: int) -> int:
    """Return the number of IDs in a request.

    Raises:
        ValueError: If the API does not take that many.
    """
    if not 0 < size <= MOST_IDS:
        raise ValueError(f"a request contains 1 to {MOST_IDS:,} orders")
    return size


def batched(order_ids: Iterable[str], size: int) -> Iterator[list[str]]:
    """Divide the IDs into lists of up to `size`, of which one is held at a time."""
    iterator = iter(order_ids)
    while part := list(islice(iterator, size)):
        yield part


async def abatched(order_ids: Iterable[str] | AsyncIterable[str], size: int) -> AsyncIterator[list[str]]:
    """Divide the IDs like `batched`, including asynchronous iterators."""
    if not isinstance(order_ids, AsyncIterable):
        for whole in batched(order_ids, size):
            yield whole
        return
    part: list[str] = []
    async for order_id in order_ids:
        part.append(order_id)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
