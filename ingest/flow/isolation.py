"""Lets one source of a process handle an entry while no other source has deliveries in flight.

The entry may have killed its workers. If it kills this process as well, Redis counts a further delivery of every entry in flight, and after a
few deaths entries of other sources would look like poison messages.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakSet

from ingest.flow.held import Held

# Seconds to wait for the deliveries of other sources. A request may take longer, and PostgreSQL may be unavailable.
_LONGEST_WAIT = 5.0


class Isolation:
    """The isolation of entries in one process, which its sources share."""

    def __init__(self) -> None:
        self._sources: WeakSet[Held] = WeakSet()
        self._isolating: Held | None = None

    def add(self, held: Held) -> None:
        """Add a source, by the deliveries that it holds, as long as these exist."""
        self._sources.add(held)

    def is_for_another(self, held: Held) -> bool:
        """Whether another source isolates an entry, so that this one must not read."""
        return self._isolating is not None and self._isolating is not held

    @asynccontextmanager
    async def alone(self, held: Held) -> AsyncIterator[bool]:
        """Wait until the other sources hold no deliveries. Yields False if another source isolates an entry now."""
        if self._isolating is not None:
            yield False
            return
        self._isolating = held
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_WAIT):
                    for other in [other for other in self._sources if other is not held]:
                        await other.until_at_most(0)
            yield True
        finally:
            self._isolating = None
