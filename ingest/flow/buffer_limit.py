"""Limits the documents between fetch and commit, by their number and by their bytes.

The limit is in memory. The entries of waiting documents are pending in Redis.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ingest.flow.shares import Share


class BufferLimit:
    """Space for a number of documents and of their bytes.

    Space is acquired before a document is decoded, which multiplies its size, and released when its delivery is settled.
    A document that is larger than the whole space gets all of it.

    Args:
        rows: most documents.
        size: most bytes of them, as fetched.
        shares: of both in the process. None if no other source uses them.
    """

    def __init__(self, rows: int, size: int, shares: tuple[Share, Share] | None = None) -> None:
        self.rows = rows
        self._size = size
        self._shares = shares
        self._rows_taken = 0
        self._size_taken = 0
        # In order, because small documents could otherwise keep overtaking a large one.
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiting_observer: Callable[[], None] = lambda: None

    @property
    def is_wanted(self) -> bool:
        """Whether a document waits for space."""
        return bool(self._waiting)

    def observe_waiting(self, observer: Callable[[], None]) -> None:
        """Call `observer` whenever a document begins to wait for space."""
        self._waiting_observer = observer

    def try_acquire(self, size: int) -> bool:
        """Acquire space for one document if there is some, and no other document waits for it."""
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
        for share in self._shares or ():
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
        size = sum(sizes)
        self._rows_taken -= len(sizes)
        self._size_taken -= size
        if self._shares is not None:
            rows_share, size_share = self._shares
            rows_share.release(len(sizes))
            size_share.release(size)
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
            for share in self._shares or ():
                share.stop_waiting()

    def _take(self, size: int) -> None:
        self._rows_taken += 1
        self._size_taken += size
        if self._shares is not None:
            rows_share, size_share = self._shares
            rows_share.take()
            size_share.take(size)

    def _has_for(self, size: int) -> bool:
        has_room = self._rows_taken < self.rows and (self._size_taken + size <= self._size or self._rows_taken == 0)
        return has_room and (self._shares is None or _has_share_for(size, *self._shares))


def _has_share_for(size: int, rows_share: Share, size_share: Share) -> bool:
    """Whether the process has space for a document. A document larger than its share waits until no source exceeds its share."""
    return rows_share.room() > 0 and (size_share.room() >= size or size_share.has_all_for(size))
