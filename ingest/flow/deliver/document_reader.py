"""Decodes a document to the orders to store, once there is buffer space for it."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime

import msgspec

from ingest.domain.deliveries.outcome import Store
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.plain_order import StorableOrder
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.deliver.kept_documents import KeptDocuments
from ingest.flow.ports import Decode


class DocumentReader:
    """Decodes the documents of one process.

    Args:
        decode: from a document to orders.
        buffer: space is acquired for a document before it is decoded. Orders to store keep it.
        keep: selects the documents that are stored with their orders. None for none of them.
    """

    def __init__(self, decode: Decode, buffer: BufferLimit, keep: KeptDocuments | None = None) -> None:
        self._decode = decode
        self._buffer = buffer
        self._keep = keep

    async def read(self, body: bytes, request: FetchRequest, at: datetime) -> Store:
        """Return the orders of a document that was requested or pushed at a time. It waits undecoded until there is space.

        Raises:
            InvalidDocument: if it is not a valid document of the requested order.
            TransformFailed: if the transform failed for it.
        """
        size = len(body)
        await self._buffer.acquire(size)
        try:
            orders = await self._decode.decode(body, request)
            return Store(orders, at, size, self._kept(body, request, orders))
        except BaseException:
            self._buffer.release(size)
            raise

    def _kept(self, body: bytes, request: FetchRequest, orders: Sequence[StorableOrder]) -> bytes | None:
        return self._keep.of(body, request, len(orders)) if self._keep is not None and orders else None


class GrowingDocumentReader(DocumentReader):
    """A reader for transforms, whose orders may be much larger than the document and acquire space of that size.

    Args:
        decode: as there.
        buffer: as there.
        keep: as there.
        turns: documents that are decoded concurrently, or whose orders wait for space. 0 for any number.
    """

    def __init__(self, decode: Decode, buffer: BufferLimit, keep: KeptDocuments | None = None, *, turns: int) -> None:
        super().__init__(decode, buffer, keep)
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
