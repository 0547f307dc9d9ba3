"""Lets concurrent calls of one producer share round trips to Redis.

One batch is in transit (several if each has to wait for a disk or a replica, see `overlapping_commit`), and later calls form the next
batch. There is no timer, so that a single call is sent immediately. A batch whose reply was lost is sent again under its number, by which
Redis recognises it, without the calls that have been given up.

When the process dies here, callers without a response enqueue their orders again, which may have been accepted.
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.domain.exponential_pause import exponential_pause
from ingest.queue.produce.drain_rate import spread
from ingest.queue.produce.enqueue_script import Added, Closed, NoRoom
from ingest.queue.produce.pending_calls import PendingCall, PendingCalls
from ingest.queue.produce.producer_errors import CLOSED, BacklogFull, IdempotencyKeyReused, QueueClosed
from ingest.queue.produce.submission import Submission
from ingest.queue.redis.connection import QueueFull, QueueRefused
from ingest.queue.redis.server_trouble import reason_to_wait

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


# Adds a batch under a number, or returns the number of orders for which there is room. See `EnqueueScript.add`.
Add = Callable[[int, list[Submission], Callable[[], None]], Awaitable[Added | NoRoom | Closed]]


class Slot:
    """Sends one batch after the other, under its own numbers.

    Attributes:
        add: Sends a batch.
        batch: The calls of the batch that is on its way.
        is_in_stream: Set when that batch is in the stream, whether it is confirmed yet or not.
    """

    def __init__(self, add: Add) -> None:
        self.add = add
        self.numbers = count()
        self.batch: Sequence[PendingCall] = ()
        self.is_in_stream = asyncio.Event()

    def fail(self, error: Exception) -> None:
        """Raise an error in those who still wait for the batch."""
        for call in self.batch:
            call.fail(error)
        self.batch = ()


class GroupCommit:
    """Sends the submissions of concurrent calls, in batches of at most `most` orders, in the order of their arrival.

    `on_wait` is called with each reason for waiting, once.
    """

    def __init__(self, add: Add, *, most: int, limit: int, on_wait: Callable[[str], None], of: str = "") -> None:
        self._slot = Slot(add)
        self._full_text = f"the backlog{of} is at its limit of {limit:,} orders"
        self._on_wait = on_wait
        self._pending = PendingCalls(most)
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failures = 0
        self._reason = ""
        # The time and the reason of the wait, while calls wait for Redis.
        self._resumes_at = 0.0
        self._waits_for: Unavailable | None = None

    async def submit(self, submission: Submission) -> int:
        """Return how many orders of the submission needed no entry, when Redis has it, however long that takes.

        Raises:
            QueueRefused: If Redis denies access.
            IdempotencyKeyReused: If its key belongs to other orders.
            QueueClosed: If the queue belongs to a former partition.
        """
        await self._pending.room()
        return await self._answer_to(submission, waits=True)

    async def try_submit(self, submission: Submission) -> int:
        """As `submit`, but do not wait for Redis or for workers.

        Raises:
            BacklogFull: If the backlog is at its limit. The submission is not in the queue.
            QueueUnavailable: If Redis cannot be used right now. The submission may be in the queue.
        """
        now = asyncio.get_running_loop().time()
        if self._waits_for is not None and now < self._resumes_at:
            raise for_one_caller(self._waits_for, max(self._resumes_at - now, _FIRST_PAUSE))
        if self._pending.is_full:
            raise QueueUnavailable("too many orders are waiting to be sent")
        return await self._answer_to(submission, waits=False)

    async def close(self) -> None:
        """Stop sending permanently. Calls without a response, and later ones, raise `QueueUnavailable`."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
            # Once more, because a task that is cancelled before it has begun does not run its own code.
            self._end(QueueUnavailable(CLOSED))

    async def _answer_to(self, submission: Submission, *, waits: bool) -> int:
        if self._is_closed:
            raise QueueUnavailable(CLOSED)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending.add(PendingCall(submission, waits, answer))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        try:
            while batch := self._pending.take_batch():
                await self._commit(self._slot, batch)
        finally:
            self._end(ending())

    def _end(self, error: Exception) -> None:
        self._sending = None
        self._slot.fail(error)
        # Taken out, so that who waits for room does not wait indefinitely.
        while calls := self._pending.take_batch():
            for call in calls:
                call.fail(error)

    async def _commit(self, slot: Slot, batch: Sequence[PendingCall]) -> None:
        """Send a batch until it is added, rejected, or no caller waits for it."""
        number, may_be_added = next(slot.numbers), False
        while batch := [call for call in batch if call.is_open]:
            slot.batch = batch
            try:
                reply = await slot.add(number, [call.submission for call in batch], slot.is_in_stream.set)
            except QueueRefused as refusal:
                for call in batch:
                    call.fail(for_one_caller(refusal))
                return
            except QueueUnavailable as error:
                may_be_added = True
                await self._wait(error, batch)
                continue
            if isinstance(reply, Added):
                self._settle(slot, batch, reply)
                return
            if isinstance(reply, Closed):
                for call in batch:
                    call.fail(QueueClosed())
                return
            if not may_be_added:
                await self._commit_what_fits(slot, batch, reply)
                return
            await self._wait(self._full(reply), batch)

    async def _commit_what_fits(self, slot: Slot, batch: Sequence[PendingCall], full: NoRoom) -> None:
        """After a batch was rejected, send the submissions from its front for which there is room, and those that need none."""
        room = full.room
        fitting: list[PendingCall] = []
        waiting: list[PendingCall] = []
        for index, call in enumerate(batch):
            needed = full.needed.get(index, len(call.submission.orders))
            # A submission that is larger than the room takes it, so that small ones behind it do not overtake it.
            room -= needed
            (fitting if room >= 0 or not needed else waiting).append(call)
        error = self._full(full)
        for call in waiting:
            if not call.waits:
                call.fail(for_one_caller(error))
        self._pending.put_back([call for call in waiting if call.is_open])
        slot.batch = ()
        if fitting:
            await self._commit(slot, fitting)
        else:
            await self._wait(error, ())

    async def _wait(self, error: Unavailable, batch: Sequence[PendingCall]) -> None:
        """Respond to callers that do not wait. Then pause, if others wait.

        When the backlog is full, pending calls that may need no room get no response yet, because only Redis can determine it.
        """
        self._failures += 1
        longest = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, self._failures)
        told = [
            *batch,
            *(call for call in self._pending if call.submission.is_plain or not isinstance(error, BacklogFull)),
        ]
        for call in told:
            if not call.waits:
                call.fail(for_one_caller(error, longest))
        if not any(call.waits and call.is_open for call in (*batch, *self._pending)):
            return
        if (reason := reason_to_wait(error)) != self._reason:
            self._reason = reason
            self._on_wait(reason)
        pause = random.uniform(0, longest)  # noqa: S311  it spreads producers, and is no secret
        self._waits_for, self._resumes_at = error, asyncio.get_running_loop().time() + pause
        await asyncio.sleep(pause)

    def _settle(self, slot: Slot, batch: Sequence[PendingCall], added: Added) -> None:
        slot.batch = ()
        self._failures, self._reason, self._waits_for = 0, "", None
        for index, call in enumerate(batch):
            if index in added.refused:
                call.fail(IdempotencyKeyReused("the idempotency key was used for other orders"))
            else:
                call.succeed(added.duplicates.get(index, 0))

    def _full(self, full: NoRoom) -> BacklogFull:
        error = BacklogFull(self._full_text)
        error.retry_after = full.retry_after
        return error


def ending() -> Exception:
    """The result for callers that still wait at the end of a sending task. A bug reaches all callers."""
    error = sys.exception()
    return error if isinstance(error, Exception) else QueueUnavailable(CLOSED)


def for_one_caller(error: Unavailable, retry_after: float | None = None) -> Unavailable:
    """Return a copy of the error for its caller. One exception raised in several tasks would collect the tracebacks of all."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    if isinstance(error, BacklogFull | QueueFull) and isinstance(copy, BacklogFull | QueueFull):
        copy.retry_after = spread(error.retry_after)
    elif retry_after is not None and isinstance(copy, QueueUnavailable):
        copy.retry_after = retry_after
    return copy
