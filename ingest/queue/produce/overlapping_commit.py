"""Group commit for batches that wait for a disk or a replica after they are in the stream, while others are sent.

Each batch uses a slot, which sends it under its own numbers until it is confirmed. Only when a slot's batch is settled may the slot's next
number be used, so that Redis' record of a slot never hides that an earlier batch was lost. A batch is sent when the previous one is in the
stream, so orders keep the order of their arrival. Only a batch that Redis has lost, and that is sent again, comes later.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ingest.queue.produce.group_commit import Add, GroupCommit, Slot, ending
from ingest.queue.produce.pending_calls import PendingCall

# A timer is not more exact than this, in seconds.
_SHORTEST_PAUSE = 0.01
# How much the time that the last batch took counts in the average.
_SHARE = 0.25
# A batch that takes longer than this, in seconds, was held up by an outage, and does not predict the next.
_LONGEST_TIME = 2.0


class OverlappingCommit(GroupCommit):
    """Sends several batches concurrently, each of `adds` one after the other."""

    def __init__(
        self, adds: Sequence[Add], *, most: int, limit: int, on_wait: Callable[[str], None], of: str = ""
    ) -> None:
        super().__init__(adds[0], most=most, limit=limit, on_wait=on_wait, of=of)
        self._free = [Slot(add) for add in adds]
        self._number_of_slots = len(adds)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_freed = asyncio.Event()
        self._begun_at = 0.0
        self._average = 0.0

    async def close(self) -> None:
        """Stop sending permanently. Calls without a response, and later ones, raise `QueueUnavailable`."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await super().close()
        if tasks:
            await asyncio.wait(tasks)

    async def _send(self) -> None:
        try:
            while self._pending:
                slot = await self._free_slot()
                if not (batch := self._pending.take_batch()):
                    self._free.append(slot)
                    break
                slot.is_in_stream.clear()
                self._begin(self._run(slot, batch))
                await slot.is_in_stream.wait()
        finally:
            self._end(ending())

    def _begin(self, run: Coroutine[Any, Any, None]) -> None:
        self._begun_at = asyncio.get_running_loop().time()
        task = asyncio.create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, slot: Slot, batch: Sequence[PendingCall]) -> None:
        slot.batch = batch
        began = self._begun_at
        try:
            await self._commit(slot, batch)
            took = min(_LONGEST_TIME, asyncio.get_running_loop().time() - began)
            self._average += (took - self._average) * _SHARE
        finally:
            slot.fail(ending())
            slot.is_in_stream.set()
            self._free.append(slot)
            self._is_freed.set()

    async def _free_slot(self) -> Slot:
        """Wait for a slot for the next batch, so that the slots do not all fill up with small batches. It is immediate if all are free."""
        loop = asyncio.get_running_loop()
        while True:
            # Twice the average is about as long as the longest, because a disk that is synced every second takes any time up to that.
            pause = self._begun_at + 2 * self._average / self._number_of_slots - loop.time()
            if self._free and (len(self._free) == self._number_of_slots or pause < _SHORTEST_PAUSE):
                return self._free.pop()
            self._is_freed.clear()
            try:
                async with asyncio.timeout(pause if self._free else None):
                    await self._is_freed.wait()
            except TimeoutError:
                pass
