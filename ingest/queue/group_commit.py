"""Lets concurrent calls of one producer share round trips to Redis.

One batch is on its way at a time; what is submitted meanwhile goes with the next. There is no timer: a call that is
alone is sent at once. A batch whose reply was lost is sent again under its number, by which Redis knows it, without
the calls that have been given up.

When the process dies here, callers without an answer do not know whether their orders were accepted, and announce
them again.
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Protocol

from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.queue.connection import QueueFull, QueueRefused
from ingest.queue.enqueue_script import Added, NoRoom
from ingest.queue.pending_calls import Call, PendingCalls
from ingest.queue.producer_errors import BacklogFull, IdempotencyKeyReused
from ingest.queue.submission import Submission

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_CLOSED = "the producer is closed"


class Add(Protocol):
    """Adds a batch under a number: see `EnqueueScript.add`."""

    def __call__(self, number: int, batch: list[Submission], /) -> Awaitable[Added | NoRoom]:
        """Add it, or say for how many orders there is room."""


class GroupCommit:
    """Sends the submissions of concurrent calls, in batches, in the order of their arrival.

    Args:
        add: sends one batch.
        most: orders in a batch.
        limit: the backlog limit, for messages.
        on_wait: told, in words, why calls wait; once for each reason.
    """

    def __init__(self, add: Add, *, most: int, limit: int, on_wait: Callable[[str], None]) -> None:
        self._add = add
        self._limit = limit
        self._on_wait = on_wait
        self._numbers = count()
        self._pending = PendingCalls(most)
        self._sending: asyncio.Task[None] | None = None
        self._batch: Sequence[Call] = ()
        self._is_closed = False
        self._failures = 0
        self._reason = ""
        # While calls wait for Redis: until when, and what for.
        self._resumes_at = 0.0
        self._waits_for: Unavailable | None = None

    async def submit(self, submission: Submission) -> None:
        """Return when Redis has the submission, however long that takes.

        Raises:
            QueueRefused: if Redis refuses us.
            IdempotencyKeyReused: if its key belongs to other orders.
        """
        await self._pending.room()
        await self._answer_to(submission, waits=True)

    async def try_submit(self, submission: Submission) -> None:
        """As `submit`, but do not wait for Redis or for workers.

        Raises:
            BacklogFull: if the backlog is at its limit; the submission is not in the queue.
            QueueUnavailable: if Redis cannot be used right now; the submission may be in the queue.
        """
        now = asyncio.get_running_loop().time()
        if self._waits_for is not None and now < self._resumes_at:
            raise _for_one_caller(self._waits_for, max(self._resumes_at - now, _FIRST_PAUSE))
        if self._pending.is_full:
            raise QueueUnavailable("too many orders are waiting to be sent")
        await self._answer_to(submission, waits=False)

    async def close(self) -> None:
        """Stop sending, for good; calls without an answer, and later ones, raise `QueueUnavailable`."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
            # Once more: a task that is cancelled before it has begun runs nothing of its own.
            self._end(QueueUnavailable(_CLOSED))

    async def _answer_to(self, submission: Submission, *, waits: bool) -> None:
        if self._is_closed:
            raise QueueUnavailable(_CLOSED)
        answer = asyncio.get_running_loop().create_future()
        self._pending.add(Call(submission, waits, answer))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        await answer

    async def _send(self) -> None:
        try:
            while batch := self._pending.take_batch():
                await self._commit(batch)
        finally:
            # No exception, if all is sent. A bug reaches all callers.
            error = sys.exception()
            self._end(error if isinstance(error, Exception) else QueueUnavailable(_CLOSED))

    def _end(self, error: Exception) -> None:
        self._sending = None
        for call in (*self._batch, *self._pending):
            call.fail(error)

    async def _commit(self, batch: Sequence[Call]) -> None:
        """Send a batch until it is added, refused, or nobody waits for it."""
        number, may_be_added = next(self._numbers), False
        while batch := [call for call in batch if call.is_open]:
            self._batch = batch
            try:
                reply = await self._add(number, [call.submission for call in batch])
            except QueueRefused as refusal:
                for call in batch:
                    call.fail(_for_one_caller(refusal))
                return
            except QueueUnavailable as error:
                may_be_added = True
                await self._wait(error, batch)
                continue
            if isinstance(reply, Added):
                self._settle(batch, reply)
                return
            if not may_be_added:
                await self._commit_what_fits(batch, reply.room)
                return
            await self._wait(self._full(), batch)

    async def _commit_what_fits(self, batch: Sequence[Call], room: int) -> None:
        """Nothing of a batch was added: send as much of it as there is room for, from the front."""
        fitting = 0
        for call in batch:
            room -= len(call.submission.orders)
            if room < 0:
                break
            fitting += 1
        self._pending.put_back(batch[fitting:])
        self._batch = ()
        if fitting:
            await self._commit(batch[:fitting])
        else:
            await self._wait(self._full(), ())

    async def _wait(self, error: Unavailable, batch: Sequence[Call]) -> None:
        """Answer those who do not wait; then pause, if somebody does."""
        self._failures += 1
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10))
        waiting = False
        for call in (*batch, *self._pending):
            if not call.waits:
                call.fail(_for_one_caller(error, longest))
            waiting |= call.is_open
        if not waiting:
            return
        if (reason := _reason(error)) != self._reason:
            self._reason = reason
            self._on_wait(reason)
        pause = random.uniform(0, longest)  # noqa: S311  it spreads producers, and is no secret
        self._waits_for, self._resumes_at = error, asyncio.get_running_loop().time() + pause
        await asyncio.sleep(pause)

    def _settle(self, batch: Sequence[Call], added: Added) -> None:
        self._batch = ()
        self._failures, self._reason, self._waits_for = 0, "", None
        for index, call in enumerate(batch):
            if index in added.refused:
                call.fail(IdempotencyKeyReused("the idempotency key was used for other orders"))
            else:
                call.succeed()

    def _full(self) -> BacklogFull:
        return BacklogFull(f"the backlog is at its limit of {self._limit:,} orders")


def _for_one_caller(error: Unavailable, retry_after: float | None = None) -> Unavailable:
    """The error as its caller's own: one exception raised in several tasks would collect the tracebacks of all."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    if retry_after is not None and isinstance(copy, BacklogFull | QueueUnavailable):
        copy.retry_after = retry_after
    return copy


def _reason(error: Unavailable) -> str:
    match error:
        case QueueFull():
            return "Redis is out of memory; waiting for the workers to make room"
        case QueueUnavailable():
            return f"Redis cannot be reached ({error}); trying again"
        case _:
            return f"{error}; waiting for the workers"
