"""Calls of a producer that wait for their turn to be sent, in the order of their arrival."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ingest.queue.produce.submission import BATCH_BYTES, Submission

# Bytes that may wait to be sent. Further callers wait before that.
_MOST_BYTES = 32 * BATCH_BYTES


class PendingCall(msgspec.Struct, frozen=True, eq=False):
    """A submission whose caller awaits the answer.

    Attributes:
        submission: The orders.
        waits: Whether the caller waits through outages and a full backlog, or gets an error.
        answer: How many of the orders needed no entry. Done as soon as that is known, or the caller has given up.
    """

    submission: Submission
    waits: bool
    answer: Any  # asyncio.Future[int], which msgspec cannot resolve

    @property
    def is_open(self) -> bool:
        """Whether the caller still waits for an answer."""
        return not self.answer.done()

    def succeed(self, duplicates: int = 0) -> None:
        """Confirm to the caller that Redis has the submission, and that `duplicates` of its orders needed no entry."""
        if self.is_open:
            self.answer.set_result(duplicates)

    def fail(self, error: Exception) -> None:
        """Raise the error in the caller."""
        if self.is_open:
            self.answer.set_exception(error)


class PendingCalls:
    """A queue of calls, bounded in bytes, from which batches of at most `most` orders are taken."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: deque[PendingCall] = deque()
        self._bytes = 0
        self._has_room = asyncio.Event()

    def __iter__(self) -> Iterator[PendingCall]:
        return iter(self._calls)

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def is_full(self) -> bool:
        """Whether no call should be added now."""
        return self._bytes >= _MOST_BYTES

    async def room(self) -> None:
        """Wait until a call may be added."""
        while self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def add(self, call: PendingCall) -> None:
        """Put a call at the end."""
        self._calls.append(call)
        self._bytes += call.submission.size

    def put_back(self, calls: Sequence[PendingCall]) -> None:
        """Put calls that were taken to the front again."""
        self._calls.extendleft(reversed(calls))
        self._bytes += sum(call.submission.size for call in calls)

    def take_batch(self) -> list[PendingCall]:
        """Take as many calls from the front as fit into a batch, at least one if there is any."""
        batch: list[PendingCall] = []
        orders = size = 0
        while self._calls:
            submission = self._calls[0].submission
            orders, size = orders + len(submission.orders), size + submission.size
            if batch and (orders > self._most or size > BATCH_BYTES):
                break
            batch.append(self._calls.popleft())
            self._bytes -= submission.size
        if not self.is_full:
            self._has_room.set()
        return batch
