"""Decodes documents, as the service's own order document or by a mapping."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ingest.domain.fetch.exchange import FetchRequest

# Bytes of a document that take the event loop 1.5 to 5 ms. Larger ones are decoded in a thread, one after the other.
LARGE = 256 * 1024

Decoded = TypeVar("Decoded")


class OrderDecoder(Generic[Decoded]):
    """Implements the port `Decode` for documents with one order.

    Args:
        parse: takes a document and the ID that was requested, and returns the order or raises `InvalidDocument`.
        large: bytes from which on a document is decoded in a thread.
    """

    def __init__(self, parse: Callable[[bytes, str], Decoded], large: int = LARGE) -> None:
        self._parse = parse
        self._large = large
        self._turn = asyncio.Lock()

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Decoded, ...]:
        """The order in a document.

        Raises:
            InvalidDocument: if it is not a valid document of the order requested.
        """
        if len(body) < self._large:
            return (self._parse(body, request.order_id),)
        async with self._turn:
            # Most of it is Python code, during which the event loop continues.
            return (await asyncio.to_thread(self._parse, body, request.order_id),)

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """As `decode`, without the order."""
        await self.decode(body, request)
