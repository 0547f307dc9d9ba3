"""Lets a few callers go on in each iteration of the event loop, and others in the next ones.

What begins with many connections at once would otherwise open all of them before the first of them sends its request, which
takes half a second for 500 TLS handshakes. Between two iterations the loop processes what has arrived, so the first request is
sent after the first handshake. Where the network takes long, an iteration takes microseconds, and all begin nearly at once.
"""

import asyncio
from collections import deque


class Turns:
    """Admits callers in their order.

    Args:
        each: how many go on in one iteration of the event loop.
    """

    def __init__(self, each: int) -> None:
        self._each = self._left = each
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_counting = False

    async def take(self) -> None:
        """Return in this iteration of the event loop, or in one of the next."""
        if not self._is_counting:
            self._is_counting = True
            self._loop.call_soon(self._next)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        self._left = self._each
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its caller was not cancelled
                turn.set_result(None)
                self._left -= 1
        self._is_counting = self._left < self._each
        if self._is_counting:
            self._loop.call_soon(self._next)
