"""Limits what waits between fetch and commit: how many documents, and how many bytes they have.

Nothing here outlives the process: what waits is pending in Redis.
"""

import asyncio


class BufferLimit:
    """Space for a number of documents, and of their bytes.

    It is acquired before a document is decoded, which makes it several times as large, and released when its delivery is settled.
    A document that is larger than all the space there is has it alone.

    Args:
        rows: most documents.
        size: most bytes of them, as fetched.
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
        """Whether a document waits for space."""
        return self._waiting > 0

    async def acquire(self, size: int) -> None:
        """Acquire space for one document, waiting for it in turn. Cancelled, it has acquired none."""
        if self._waiting or not self._has_for(size):
            await self._wait_for(size)
        self._rows_taken += 1
        self._size_taken += size

    def release(self, size: int) -> None:
        """Release what was acquired for one document."""
        self._rows_taken -= 1
        self._size_taken -= size
        self._freed.set()

    async def _wait_for(self, size: int) -> None:
        self._waiting += 1
        try:
            # In turn: small documents would otherwise keep overtaking a large one.
            async with self._turn:
                while not self._has_for(size):
                    self._freed.clear()
                    await self._freed.wait()
        finally:
            self._waiting -= 1

    def _has_for(self, size: int) -> bool:
        return self._rows_taken < self.rows and (self._size_taken + size <= self._size or self._rows_taken == 0)
