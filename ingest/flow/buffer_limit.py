"""Limits the documents between fetch and commit, by their number and by their bytes.

The limit is in memory. The entries of waiting documents are pending in Redis.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ingest.flow.shares import Share

# Bytes of a document from which on the requests of a source are limited by their size.
_LARGE = 64 * 1024


class BufferLimit:
    """Space for a number of documents and of their bytes.

    Space is acquired before a document is decoded, which multiplies its size, and released when its delivery is settled.
    A document that is larger than the whole space gets all of it.

    Attributes:
        rows: most documents of all sources.

    Args:
        rows: the share of the documents in the process.
        size: the share of their bytes, as fetched.
    """

    def __init__(self, rows: Share, size: Share) -> None:
        self.rows = rows.total
        self._rows = rows
        self._size = size
        # In order, because small documents could otherwise keep overtaking a large one.
        self._recent = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiting_observer: Callable[[], None] = lambda: None

    @property
    def is_wanted(self) -> bool:
        """Whether a document waits for space."""
        return bool(self._waiting)

    def observe_waiting(self, observer: Callable[[], None]) -> None:
        """Call `observer` whenever a document begins to wait for space."""
        self._waiting_observer = observer

    def fitting(self) -> int | None:
        """How many documents as large as recent ones may be requested next to documents with space. None for any number."""
        return None if self._recent < _LARGE else max(1, self._size.room() // self._recent)

    def try_acquire(self, size: int) -> bool:
        """Acquire space for one document if there is some, and no other document waits for it."""
        # The largest of about the last 50.
        self._recent = max(size, self._recent - self._recent // 16)
        if self._waiting or not self._has_for(size):
            return False
        self._take(size)
        return True

    async def acquire(self, size: int) -> None:
        """Acquire space for one document, in order of the calls. If it is cancelled, no space is acquired."""
        if self.try_acquire(size):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        for share in (self._rows, self._size):
            share.wait(self._grant)
        self._waiting_observer()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._grant()
            else:  # it was cancelled in the same iteration of the event loop
                self.release(size)
            raise

    def release(self, *sizes: int) -> None:
        """Release the space of documents of these sizes."""
        self._rows.release(len(sizes))
        self._size.release(sum(sizes))
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        """Grant space to waiting documents, in order."""
        waiting = self._waiting
        while waiting and (waiting[0][1].cancelled() or self._has_for(waiting[0][0])):
            size, granted = waiting.popleft()
            if not granted.cancelled():
                self._take(size)
                granted.set_result(None)
        if not waiting:
            for share in (self._rows, self._size):
                share.stop_waiting()

    def _take(self, size: int) -> None:
        self._rows.take()
        self._size.take(size)

    def _has_for(self, size: int) -> bool:
        """Whether there is space for a document. One larger than the share waits until no source exceeds its share."""
        return self._rows.room() > 0 and (self._size.room() >= size or self._size.has_all_for(size))
