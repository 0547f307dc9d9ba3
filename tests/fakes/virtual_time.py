"""An event loop with virtual time, which jumps to the next timer when it is idle.

A test that only waits for timers takes no time, and takes the same course each time. Fakes do not wait for input and
output. A test that would wait indefinitely fails instead.
"""

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, ParamSpec

P = ParamSpec("P")
# For a thread to hand its result back, which is the one thing that takes real time.
_THREAD_TIMEOUT = 10.0
_START = 1_000_000.0


class _Task(asyncio.Task[Any]):
    """Has a place in sets that does not depend on its address in memory."""

    def __init__(self, *arguments: Any, number: int, **named: Any) -> None:
        self._number = number
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


class _Call:
    """A callback that the loop calls, as `asyncio.TimerHandle`."""

    __slots__ = ("arguments", "at", "callback", "context")

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None, at: float
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments
        self.context = context or copy_context()
        self.at = at

    def cancel(self) -> None:
        self.callback, self.arguments = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.at


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """An event loop without input and output, which takes a third of the time of the usual one.

    An error of a callback ends it.
    """

    def __init__(self) -> None:
        self._runs = False
        super().__init__()
        self._now = _START
        self._due: deque[_Call] = deque()
        # Timers of the same instant in their order.
        self._timers: list[tuple[float, int, _Call]] = []
        self._numbers = count()
        self._has_more = threading.Event()

    def time(self) -> float:
        return self._now

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> Any:
        return _Task(coro, loop=self, name=name, context=context, number=next(self._numbers))

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        call = _Call(callback, args, context, self._now)
        self._due.append(call)
        return call

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        call = self.call_soon(callback, *args, context=context)
        self._has_more.set()
        return call

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        call = _Call(callback, args, context, self._now + delay)
        heappush(self._timers, (call.at, next(self._numbers), call))
        return call

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        call = _Call(callback, args, context, when)
        heappush(self._timers, (when, next(self._numbers), call))
        return call

    def is_running(self) -> bool:
        return self._runs

    def stop(self) -> None:
        self._runs = False

    def run_forever(self) -> None:
        due, timers = self._due, self._timers
        self._runs = True
        asyncio._set_running_loop(self)
        try:
            while self._runs:
                if not due:
                    self._pass_time()
                while timers and timers[0][0] <= self._now:
                    due.append(heappop(timers)[2])
                for _ in range(len(due)):
                    call = due.popleft()
                    if call.callback is not None:
                        call.context.run(call.callback, *call.arguments)
        finally:
            self._runs = False
            asyncio._set_running_loop(None)

    def _pass_time(self) -> None:
        """Jump to the next timer, or wait for a thread."""
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        if self._timers:
            self._now = max(self._now, self._timers[0][0])
            return
        if not self._has_more.wait(_THREAD_TIMEOUT):
            raise AssertionError("everything waits, and nothing will happen")
        self._has_more.clear()


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in virtual time."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*arguments, **named))

    return run


def now() -> float:
    """Seconds of the running loop, which is the clock for all parts of a test in virtual time."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], object], within: float = 60.0) -> None:
    """Let time pass until the condition is true, and check it less and less often, up to ten times per second."""
    end, pause = now() + within, 0.001
    while not condition():
        assert now() < end, f"not within {within} s"
        await asyncio.sleep(pause)
        pause = min(0.1, 1.2 * pause)


async def some_turns(count: int = 20) -> None:
    """Let the loop run all callbacks that are due without time passing."""
    for _ in range(count):
        await asyncio.sleep(0)
