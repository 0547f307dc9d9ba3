"""Turns for the parts of large bodies, so that one source leaves the event loop to the others.

Each part costs the loop up to a millisecond, or more while a thread decodes another document. With many large bodies on their way, all
would arrive in each iteration of the loop. With turns, it is one part of each transport. The others wait in the sockets.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class HeavyBodies:
    """The connections of one transport that wait to receive a further part of a large body."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` in its turn."""
        if not self._waiting:
            self._loop.call_soon(self._next)
        self._waiting.append(resume)

    def _next(self) -> None:
        resume = self._waiting.popleft()
        # First, so that an error of one connection does not stop the others.
        if self._waiting:
            self._loop.call_soon(self._next)
        resume()
