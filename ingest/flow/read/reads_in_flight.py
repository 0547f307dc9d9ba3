"""Counts the reads of one source that have begun and not returned.

Redis counts a delivery when it hands an entry out, before the reply arrives. While a read is in flight, the process may therefore hold
entries that `Held` does not contain yet. If the process dies, they are pending under the name of its consumer.
"""

import asyncio


class ReadsInFlight:
    """The reads in flight, each a `with` block."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        """Begin a read."""
        self._count += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        """End it. Its caller holds the deliveries before another task runs."""
        self._count -= 1
        if self._count == 0:
            self._none.set()

    async def ended(self) -> None:
        """Wait until no read is in flight."""
        await self._none.wait()
