"""Starts deliveries, each in a task of its own, and waits until more may start: a delivery needs a slot before it is read."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from ingest.domain.deliveries.delivery import Delivery
from ingest.flow.deliver.gate import Gate
from ingest.flow.held import Held
from ingest.flow.pace.pace import Pace
from ingest.flow.shutdown import Shutdown
from ingest.telemetry.shared_metrics import Gauge

# With a backlog, a read waits this long for a few free slots together: one entry costs as much as fifty.
_GATHER = 0.002
_GATHER_SHARE = 8
# With requests for several orders, for the slots of a whole request.
_GATHER_REQUEST = 0.005


class Scheduler:
    """The slots of one process: as many as the pace allows now, less those that are taken.

    Attributes:
        tasks: the deliveries that run now. Each takes a slot.

    Args:
        held: gets each delivery with its task.
        pace: how many requests may be in flight.
        gate: while it is closed, nothing is read.
        gauge: shows how many slots are taken.
        most: orders in flight, as set.
    """

    def __init__(self, held: Held, pace: Pace, gate: Gate, gauge: Gauge, most: int) -> None:
        self._held = held
        self._pace = pace
        self._gate = gate
        self._gauge = gauge
        self._most = most
        self._wanted = 0
        self._changed = pace.changed
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, delivery: Delivery, processing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Hold a delivery, and process it in a task of its own."""
        task = asyncio.create_task(processing)
        task.add_done_callback(self._ended)
        self.tasks.add(task)
        self._held.add(delivery, task)
        self._gauge.set(len(self.tasks))
        return task

    async def wait(self, shutdown: Shutdown, *, backlog: bool) -> int:
        """How many deliveries may be read now, or 0 if there is something else to do first.

        Args:
            shutdown: a request to stop ends the wait.
            backlog: whether to wait a little longer for several slots: then more than one delivery is there to be read.
        """
        await self._until_free(1, shutdown)
        if backlog and (missing := self._worth_a_read() - self._free()) > 0 and not self._is_interrupted(shutdown):
            await self._gather(missing)
        if self._is_interrupted(shutdown):
            return 0
        if (pause := self._gate.delay()) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            return 0
        return self._free()

    def wake(self) -> None:
        """End a wait: the circuit has opened, or a stop was requested."""
        self._changed.set()

    async def _until_free(self, count: int, shutdown: Shutdown) -> None:
        while (free := self._free()) < count and not self._is_interrupted(shutdown):
            self._wanted = count - free
            self._changed.clear()
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

    def _slots(self) -> int:
        return min(self._most, self._pace.orders())

    def _free(self) -> int:
        return self._slots() - len(self.tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._gauge.set(len(self.tasks))
        if self._wanted:
            self._wanted -= 1
            if not self._wanted:
                self._changed.set()
