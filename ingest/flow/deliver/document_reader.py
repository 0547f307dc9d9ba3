"""Decodes a document to the orders to store, once there is buffer space for it."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime

import msgspec

from ingest.domain.deliveries.outcome import Store
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.clean_json import storable_document
from ingest.domain.orders.plain_order import StorableOrder
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.deliver.decoding import LARGE
from ingest.flow.ports import Decode
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("documents")
# Bytes of all copies of a document with several orders. They are in one statement, and PostgreSQL takes about 50 ms for each MB.
_MOST_COPIES = 32 * 1024 * 1024


class DocumentReader:
    """Decodes the documents of one process.

    Args:
        decode: from a document to orders.
        buffer: space is acquired for a document before it is decoded. Orders to store keep it.
        not_kept: counts documents that PostgreSQL cannot store with their orders. None if no documents are kept.
    """

    def __init__(self, decode: Decode, buffer: BufferLimit, not_kept: Counter | None = None) -> None:
        self._decode = decode
        self._buffer = buffer
        self._not_kept = not_kept

    async def read(self, body: bytes, request: FetchRequest, at: datetime) -> Store:
        """Return the orders of a document that was requested or pushed at a time. It waits undecoded until there is space.

        Raises:
            InvalidDocument: if it is not a valid document of the requested order.
            TransformFailed: if the transform failed for it.
        """
        size = len(body)
        if not self._buffer.try_acquire(size):
            await self._buffer.acquire(size)
        try:
            orders = await self._decode.decode(body, request)
            return Store(orders, at, size, None if self._not_kept is None else await self._kept(body, request, orders))
        except BaseException:
            self._buffer.release(size)
            raise

    def drop(self, store: Store) -> None:
        """Release the space of orders that are not stored."""
        self._buffer.release(store.size)

    async def _kept(self, body: bytes, request: FetchRequest, orders: Sequence[StorableOrder]) -> bytes | None:
        """The document to store with each of its orders, if PostgreSQL can store it."""
        if not orders:
            return None
        kept = None
        if len(orders) == 1 or len(orders) * len(body) <= _MOST_COPIES:
            is_large = len(body) >= LARGE
            kept = await asyncio.to_thread(storable_document, body) if is_large else storable_document(body)
        if kept is None and self._not_kept is not None:
            self._not_kept.inc()
            _log.warning("document_not_kept", order_id=request.order_id)
        return kept


class GrowingDocumentReader(DocumentReader):
    """A reader for transforms, whose orders may be much larger than the document and acquire space of that size.

    Args:
        turns: documents that are decoded concurrently, or whose orders wait for space. 0 for any number.
    """

    def __init__(self, decode: Decode, buffer: BufferLimit, not_kept: Counter | None = None, *, turns: int) -> None:
        super().__init__(decode, buffer, not_kept)
        self._turns = asyncio.Semaphore(turns) if turns else nullcontext()

    async def read(self, body: bytes, request: FetchRequest, at: datetime) -> Store:
        """As there."""
        # Before the document has space, so that a document that waits for its turn does not occupy space that orders wait for.
        async with self._turns:
            return await self._with_space(await super().read(body, request, at))

    async def _with_space(self, store: Store) -> Store:
        """Acquire space for the orders. While they wait, they hold no space, so that no other document waits for them."""
        try:
            size = _size_of(store)
        except BaseException:
            self._buffer.release(store.size)
            raise
        if size <= store.size:
            return store
        self._buffer.release(store.size)
        await self._buffer.acquire(size)
        return msgspec.structs.replace(store, size=size)


def _size_of(store: Store) -> int:
    """The bytes that are sent to PostgreSQL, without short texts."""
    rows = sum(len(order.lines_json()) + len(order.attributes_json()) for order in store.orders)
    return rows + len(store.orders) * len(store.document or b"")
