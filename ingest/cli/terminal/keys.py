"""Reads single keys from the terminal while a command draws on it."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Keys:
    """The keys that the user presses, except the keys that edit a line. Ctrl-C still interrupts."""

    def __init__(self) -> None:
        self._pressed: asyncio.Queue[str] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Keys"]:
        """Read keys while the block runs. If standard input is not a terminal, there are none."""
        keys = cls()
        if not sys.stdin.isatty():
            yield keys
            return
        terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal)
        loop.add_reader(terminal, keys._read, terminal)
        # A shell sets its own mode while the command is stopped by Ctrl-Z.
        loop.add_signal_handler(signal.SIGCONT, tty.setcbreak, terminal)
        try:
            yield keys
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            loop.remove_reader(terminal)
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    def _read(self, terminal: int) -> None:
        data = os.read(terminal, 64)
        if not data:
            # The terminal is closed.
            asyncio.get_running_loop().remove_reader(terminal)
        for key in data.decode(errors="ignore"):
            self._pressed.put_nowait(key)

    async def within(self, seconds: float) -> str | None:
        """Wait for the next key, and return None if there is none within this time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._pressed.get()
        except TimeoutError:
            return None
