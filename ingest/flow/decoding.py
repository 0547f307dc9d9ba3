"""Decodes documents as the service's own order document; a mapping or user code takes its place."""

import asyncio

from ingest.domain.fetching import FetchRequest
from ingest.domain.order import Order, decode_order

# Decoding a document takes some 20 ms for each MB: from here on it is done in a thread, one at a time, so that the loop goes on.
_LARGE = 1024 * 1024


class OrderDecoder:
    """Keeps the port `Decode`: one order in a document, by the service's own schema."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """The order in a document.

        Raises:
            InvalidDocument: if it is not a valid document of the order requested.
        """
        if len(body) < _LARGE:
            return (decode_order(body, request.order_id),)
        async with self._turn:
            # Most of it is Python code, which lets the loop have its turns.
            return (await asyncio.to_thread(decode_order, body, request.order_id),)
