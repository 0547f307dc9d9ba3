"""Lets one source of a process handle an entry while no other source has deliveries in flight.

The entry may have killed its workers. If it kills this process as well, Redis counts a further delivery of every entry in flight, and after a
few deaths entries of other sources would look like poison messages.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakKeyDictionary

from ingest.flow.held import Held
from ingest.flow.read.reads_in_flight import ReadsInFlight

# Seconds to wait for the deliveries of other sources. A request may take longer, and PostgreSQL may be unavailable.
_LONGEST_WAIT = 5.0


class Isolation:
    """The isolation of entries in one process, which its sources share."""

    def __init__(self) -> None:
        self._sources: WeakKeyDictionary[Held, ReadsInFlight] = WeakKeyDictionary()
        self._isolating: Held | None = None

    def add(self, held: Held, reads: ReadsInFlight) -> None:
        """Add a source, by the deliveries that it holds and its reads, as long as these exist."""
        self._sources[held] = reads

    def is_for_another(self, held: Held) -> bool:
        """Whether another source isolates an entry, so that this one must not read."""
        return self._isolating is not None and self._isolating is not held

    @asynccontextmanager
    async def alone(self, held: Held) -> AsyncIterator[bool]:
        """Wait until the other sources hold no deliveries and read none. Yields False if another source isolates an entry now."""
        if self._isolating is not None:
            yield False
            return
        self._isolating = held
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_WAIT):
                    for other, reads in [each for each in self._sources.items() if each[0] is not held]:
                        # No further read begins. The entries of the last one are held when it ends.
                        await reads.ended()
                        await other.until_at_most(0)
            yield True
        finally:
            self._isolating = None
