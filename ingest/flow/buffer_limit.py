"""Bounds what waits between fetch and commit: how many orders, and how many bytes their documents have.

Nothing here outlives the process: what waits is pending in Redis.
"""

import asyncio


class BufferLimit:
    """Room for a number of orders, and of bytes of their documents.

    It is taken before a document is decoded, which makes it several times as large, and given back when the order is settled.
    A document that is larger than all the room there is has it alone.

    Args:
        rows: most orders.
        size: most bytes of their documents, as fetched.
    """

    def __init__(self, rows: int, size: int) -> None:
        self.rows = rows
        self._size = size
        self._rows_taken = 0
        self._size_taken = 0
        self._freed = asyncio.Event()
        self._waiting = 0
        self._turn = asyncio.Lock()

    @property
    def is_wanted(self) -> bool:
        """Whether an order waits for room."""
        return self._waiting > 0

    async def take(self, size: int) -> None:
        """Take room for one order, waiting for it in turn. Cancelled, it has taken none."""
        if self._waiting or not self._has_for(size):
            await self._wait_for(size)
        self._rows_taken += 1
        self._size_taken += size

    def give_back(self, size: int) -> None:
        """Give back what was taken for one order."""
        self._rows_taken -= 1
        self._size_taken -= size
        self._freed.set()

    async def _wait_for(self, size: int) -> None:
        self._waiting += 1
        try:
            # In turn: small documents would else go on passing a large one.
            async with self._turn:
                while not self._has_for(size):
                    self._freed.clear()
                    await self._freed.wait()
        finally:
            self._waiting -= 1

    def _has_for(self, size: int) -> bool:
        return self._rows_taken < self.rows and (self._size_taken + size <= self._size or self._rows_taken == 0)
