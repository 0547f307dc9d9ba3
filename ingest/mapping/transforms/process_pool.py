"""Runs a user's function in separate processes, so that it cannot block or end the event loop.

Each process handles a single order, so the order is known when the process dies. It then gets a second try while the pool runs
no other order. Only an order that ends its process again is at fault. Every second try uses a new process, because earlier orders may
have left memory, open files or locks in the old process. When the worker dies, its processes end.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from ingest.domain.errors import ConfigError, TransformFailed
from ingest.domain.exponential_pause import exponential_pause
from ingest.domain.orders.order import Order
from ingest.mapping.transforms.child import ChildProcess, ProcessEnded, TookTooLong
from ingest.mapping.transforms.functions import Returned
from ingest.mapping.transforms.messages import Reply, Start, framed
from ingest.telemetry.logs import get_logger

_log = get_logger("transform")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class _Place:
    """A place for one process, which is started on demand.

    Attributes:
        child: the running process, or None.
    """

    def __init__(self, start: Callable[[], Awaitable[ChildProcess]]) -> None:
        self._start = start
        self.child: ChildProcess | None = None

    async def open(self) -> None:
        """Start a process, like `ChildProcess.start`."""
        self.child = await self._start()

    async def call(self, task: bytes, timeout: float) -> Reply:  # noqa: ASYNC109
        """Call the function like `ChildProcess.call`, and wait while a process cannot be started."""
        child = self.child
        if child is None or child.has_ended:
            await self.close()
            child = await self._restarted()
        try:
            reply = await child.call(task, timeout)
        except BaseException:
            await self.close()
            raise
        if reply.ends:
            await self.close()
        return reply

    async def call_in_new_process(self, task: bytes, timeout: float) -> Reply:  # noqa: ASYNC109
        """Call the function in a new process."""
        await self.close()
        return await self.call(task, timeout)

    async def close(self) -> None:
        """End and reap the process, if it was started."""
        if self.child is not None:
            await asyncio.shield(self.child.end())
            self.child = None

    async def _restarted(self) -> ChildProcess:
        failures = 0
        while True:
            try:
                self.child = await self._start()
            except (ConfigError, ProcessEnded, OSError) as error:
                pause = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, failures)
                failures += 1
                _log.error("transform_process_not_started", error=str(error), retry_in=pause)
                await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311  spreads processes
            else:
                return self.child


class ProcessPool:
    """Implements `ingest.mapping.transforms.transform.Runner`.

    Args:
        places: one place for each process.
        timeout: seconds that one call may take.
    """

    def __init__(self, places: list[_Place], timeout: float) -> None:
        self._count = len(places)
        self._timeout = timeout
        self._free: asyncio.Queue[_Place] = asyncio.Queue()
        self._turn = asyncio.Lock()
        for place in places:
            self._free.put_nowait(place)

    @classmethod
    @asynccontextmanager
    async def open(cls, function: str, processes: int, timeout: float, memory: int) -> AsyncIterator["ProcessPool"]:  # noqa: ASYNC109
        """Open a pool whose processes have loaded the function.

        Raises:
            ConfigError: if the function cannot be loaded.
        """
        start = partial(ChildProcess.start, Start(function, memory, list(sys.path)))
        places = [_Place(start) for _ in range(processes)]
        try:
            # All starts are awaited even if one fails, because a cancelled start leaves a process to be reaped.
            for outcome in await asyncio.gather(*(place.open() for place in places), return_exceptions=True):
                if outcome is not None:
                    raise outcome
            yield cls(places, timeout)
        finally:
            for place in places:
                await place.close()

    async def run(self, order: Order, body: bytes) -> list[Returned]:
        """Return the function's result for an order.

        Raises:
            TransformFailed: if it fails, or twice takes too long or ends its process.
        """
        try:
            task = framed((order, body))
        except RecursionError:
            raise TransformFailed("the attributes of the order are nested too deeply") from None
        try:
            try:
                reply = await self._call(order.id, task)
            except TookTooLong:
                raise
            except ProcessEnded as first:
                _log.warning("transform_process_ended", order_id=order.id, error=str(first))
                reply = await self._call_isolated(task)
        except ProcessEnded as last:
            raise TransformFailed(f"{last}, twice") from last
        if reply.error:
            raise TransformFailed(reply.error)
        return reply.returned

    async def _call(self, order_id: str, task: bytes) -> Reply:
        """Call the function, and once more if it takes too long or exhausts its process."""
        # In turn, so that later calls cannot overtake a call that waits for the whole pool.
        async with self._turn:
            place = await self._free.get()
        try:
            try:
                reply = await place.call(task, self._timeout)
            except TookTooLong as first:
                error = str(first)
            else:
                if not reply.ends:
                    return reply
                error = reply.error
            _log.warning("transform_process_ended", order_id=order_id, error=error)
            return await place.call_in_new_process(task, self._timeout)
        finally:
            self._free.put_nowait(place)

    async def _call_isolated(self, task: bytes) -> Reply:
        """Call the function while no other call runs, so that only this order can end the process."""
        places: list[_Place] = []
        try:
            async with self._turn:
                while len(places) < self._count:
                    places.append(await self._free.get())
                place = next((place for place in places if place.child is None), places[0])
                return await place.call_in_new_process(task, self._timeout)
        finally:
            for place in places:
                self._free.put_nowait(place)


async def check_function(function: str, memory: int) -> None:
    """Check that a process can load the function, so that the worker fails at its start otherwise.

    Raises:
        ConfigError: if it cannot be loaded.
    """
    try:
        child = await ChildProcess.start(Start(function, memory, list(sys.path)))
    except ProcessEnded as error:
        raise ConfigError(f"INGEST_TRANSFORM: {function} cannot be used: importing it {error}") from error
    await child.end()
