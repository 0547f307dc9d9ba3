"""An event loop with virtual time, which jumps to the next timer when it is idle.

A test that only waits for timers takes no time, and takes the same course each time. Fakes do not wait for input and
output. A test that would wait indefinitely fails instead.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, ParamSpec

P = ParamSpec("P")
# For a thread to hand its result back, which is the one thing that takes real time.
_THREAD_TIMEOUT = 10.0
_START = 1_000_000.0


class _Selector(selectors.DefaultSelector):
    """Passes virtual time where others wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = _START

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            ready = super().select(_THREAD_TIMEOUT)
            if not ready:
                raise AssertionError("everything waits, and nothing will happen")
            return ready
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class _Task(asyncio.Task[Any]):
    """Has a place in sets that does not depend on its address in memory."""

    def __init__(self, *arguments: Any, number: int, **named: Any) -> None:
        self._number = number
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time` is its selector's."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        numbers = count()
        self.set_task_factory(
            lambda loop, coroutine, **named: _Task(coroutine, loop=loop, number=next(numbers), **named)
        )

    def time(self) -> float:
        return self._virtual.now


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
