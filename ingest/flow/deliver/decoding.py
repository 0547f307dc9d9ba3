"""Decodes documents: as the service's own order document, or by a mapping; user code takes its place."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.plain_order import StorableOrder

# Decoding a document takes some 20 ms for each MB: from here on it is done in a thread, one at a time, so that the loop goes on.
_LARGE = 1024 * 1024

Decoded = TypeVar("Decoded", bound=StorableOrder)


class OrderDecoder(Generic[Decoded]):
    """Keeps the port `Decode`: one order in a document.

    Args:
        parse: takes a document and the ID that was requested, and returns the order or raises `InvalidDocument`.
        large: bytes from which on a document is decoded in a thread.
    """

    def __init__(self, parse: Callable[[bytes, str], Decoded], large: int = _LARGE) -> None:
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
            # Most of it is Python code, which lets the loop have its turns.
            return (await asyncio.to_thread(self._parse, body, request.order_id),)

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """As `decode`, without the order."""
        await self.decode(body, request)
