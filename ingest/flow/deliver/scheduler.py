"""Starts deliveries, each in a separate task, and waits until more may be read.

A delivery begins when it has a slot. With a backlog, the next few are read before their slots are free, so that a slot does not
wait for Redis. They are held from then on. If the process dies, they are pending in Redis like the others.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

from ingest.domain.deliveries.delivery import Delivery
from ingest.flow.deliver.gate import Gate
from ingest.flow.held import Held
from ingest.flow.pace.pace import Pace
from ingest.flow.shares import Share
from ingest.flow.shutdown import Shutdown
from ingest.telemetry.shared_metrics import Gauge

# With a backlog, a read waits this long for a few free slots together, because one entry costs as much as fifty.
_GATHER = 0.002
_GATHER_SHARE = 8
# With requests for several orders, for the slots of a whole request.
_GATHER_REQUEST = 0.005
# Deliveries are read ahead if they begin within this time, at the rate at which others have ended since the last read: other
# processes could begin them sooner otherwise.
_AHEAD = 0.03
_AHEAD_SHARE = 4
# With a faster API the processor is the limit, and reading ahead takes some of it.
_SHORTEST_FETCH = 0.02

Turn = asyncio.Future[None] | None
"""Done when a delivery has a slot. None if it has one."""
Process = Callable[[Delivery, Turn], Coroutine[Any, Any, None]]
"""Processes a delivery, which first waits for its turn."""


class Scheduler:
    """The slots of one process: as many as the pace allows now, less those that are taken.

    Attributes:
        tasks: the deliveries that have begun, each in a slot, and those that wait for their turn.

    Args:
        held: gets each delivery with its task.
        pace: how many requests may be in flight.
        gate: while it is closed, nothing is read.
        gauge: shows how many slots are taken.
        most: orders in flight, as set.
        share: of the slots of the process.
        fitting: returns how many documents may be requested, because there is memory for them. None for any number.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        held: Held,
        pace: Pace,
        gate: Gate,
        gauge: Gauge,
        most: int,
        share: Share,
        fitting: Callable[[], int | None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held = held
        self._pace = pace
        self._gate = gate
        self._gauge = gauge
        self._most = most
        self._share = share
        self._fitting = fitting
        self._clock = clock
        self._wanted = 0
        self._changed = pace.changed
        self._waiting: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        self._ahead = self._ended_since = 0
        self._read_at = clock()
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, delivery: Delivery, processing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Hold a delivery, and process it in a separate task."""
        task = self._start(delivery, processing)
        self._share.take()
        self._show()
        return task

    def start_in_turn(self, deliveries: Iterable[Delivery], process: Process) -> None:
        """Hold deliveries, and process each in a separate task as soon as it has a slot."""
        loop, slots = asyncio.get_running_loop(), self._slots()
        for delivery in deliveries:
            turn = loop.create_future() if len(self.tasks) >= slots else None
            task = self._start(delivery, process(delivery, turn))
            if turn is not None:
                self._waiting[task] = turn
            else:
                self._share.take()
        if self._waiting:
            self._share.wait(self._use_room)
        self._show()

    async def wait(self, shutdown: Shutdown, *, backlog: bool) -> int:
        """How many deliveries may be read now, or 0 if there is something else to do first.

        Args:
            shutdown: a request to stop ends the wait.
            backlog: whether to read ahead, or to wait a little longer for several slots: more than one delivery is there to be read.
        """
        # The pace may have become slower since the last read.
        ahead = min(self._ahead, self._slots() // _AHEAD_SHARE) if backlog else 0
        await self._until_free(1 + ahead // 2 - ahead, shutdown)
        missing = self._worth_a_read() - self._free() if backlog and not ahead else 0
        if missing > 0 and not self._is_interrupted(shutdown):
            await self._gather(missing)
        if self._is_interrupted(shutdown):
            return 0
        if (pause := self._gate.delay()) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            return 0
        self._ahead = self._next_ahead()
        return max(0, self._free() + ahead)

    def wake(self) -> None:
        """End a wait: the circuit has opened, a pause has ended, or a stop was requested."""
        self._changed.set()

    def begin_all(self) -> None:
        """Begin the deliveries that wait for their turn without slots, because the gate releases them."""
        self._begin_waiting(len(self._waiting))
        self._show()

    async def _until_free(self, count: int, shutdown: Shutdown) -> None:
        """Wait until that many slots are free. Below zero, those that wait for their turn lack as many slots."""
        while not self._is_interrupted(shutdown):
            self._begin()
            if (free := self._free()) >= count:
                break
            self._wanted = count - free
            self._changed.clear()
            self._share.wait(self._use_room)
            await self._changed.wait()
        self._wanted = 0

    async def _gather(self, missing: int) -> None:
        """Wait a moment until that many further slots are free."""
        self._wanted = missing
        self._changed.clear()
        seconds = _GATHER if self._pace.per_request == 1 else _GATHER_REQUEST
        # Nearly always the time ends the wait. A timeout would cancel it, which takes several times as long.
        timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()
            self._wanted = 0

    def _is_interrupted(self, shutdown: Shutdown) -> bool:
        return shutdown.requested.is_set() or self._gate.is_closed

    def _worth_a_read(self) -> int:
        """How many free slots are worth a read."""
        share = _GATHER_SHARE if self._pace.per_request == 1 else max(2, -(-self._most // self._pace.per_request))
        return self._slots() // share

    def _next_ahead(self) -> int:
        """How many deliveries begin within `_AHEAD`. Requests for several orders have slots enough without reading ahead."""
        now = self._clock()
        seconds, ended = now - self._read_at, self._ended_since
        self._read_at, self._ended_since = now, 0
        if self._pace.per_request > 1 or self._slots() * seconds <= ended * _SHORTEST_FETCH:
            return 0
        return int(_AHEAD * ended / seconds)

    def _slots(self) -> int:
        begun, fitting = self._share.taken, self._fitting()
        slots = min(self._most, self._pace.orders(), begun + self._share.room())
        return slots if fitting is None else min(slots, fitting)

    def _free(self) -> int:
        """How many more deliveries than now fit into the slots. Negative if some wait for their turn."""
        return self._slots() - len(self.tasks)

    def _start(self, delivery: Delivery, processing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(processing)
        task.add_done_callback(self._ended)
        self.tasks.add(task)
        self._held.add(delivery, task)
        return task

    def _begin(self) -> None:
        """Begin deliveries that wait for their turn, in order, while there are slots."""
        if self._waiting:
            self._begin_waiting(self._free() + len(self._waiting))
        self._show()

    def _begin_waiting(self, count: int) -> None:
        waiting = self._waiting
        for task in list(islice(waiting, max(0, count))):
            turn = waiting.pop(task)
            self._share.take()
            if not turn.done():
                turn.set_result(None)

    def _show(self) -> None:
        self._gauge.set(self._share.taken)

    def _use_room(self) -> None:
        """Other sources have released slots."""
        if self._waiting:
            self._begin()
        if self._wanted:
            self._changed.set()
        elif not self._waiting:
            self._share.stop_waiting()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if self._waiting.pop(task, None) is None:
            self._share.release()
        self._ended_since += 1
        self._begin()
        if self._wanted:
            self._wanted -= 1
            if not self._wanted:
                self._changed.set()
