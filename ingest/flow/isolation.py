"""Lets one source of a process handle an entry while no other source handles entries that were delivered before.

The entry may have killed its workers. If it kills this process as well, Redis counts a further delivery of every entry in flight. After a
few deaths, entries of other sources would look like poison messages. New entries of other sources may be in flight, because each of them
is delivered once together with the entry, and then waits for its end like other redelivered entries.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from weakref import WeakSet

from ingest.flow.held import Held

# Seconds to wait for the deliveries of other sources. A request may take longer, and PostgreSQL may be unavailable.
_LONGEST_WAIT = 5.0


class Isolation:
    """The isolation of entries in one process, which its sources share.

    Attributes:
        isolating: the source that isolates an entry.
    """

    def __init__(self) -> None:
        self._sources: WeakSet[SourceIsolation] = WeakSet()
        self.isolating: SourceIsolation | None = None

    def of_source(self, held: Held) -> "SourceIsolation":
        """Add a source, by the deliveries that it holds, as long as the result exists."""
        source = SourceIsolation(self, held)
        self._sources.add(source)
        return source

    async def until_others(
        self, source: "SourceIsolation", wait: Callable[["SourceIsolation"], Awaitable[None]]
    ) -> None:
        """Wait some seconds for each other source."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT):
                for other in [each for each in self._sources if each is not source]:
                    await wait(other)


class SourceIsolation:
    """The isolation of the entries of one source from the entries of the others.

    Redis counts a delivery when it hands an entry out, before the reply arrives. While a claim is in flight, the process may therefore hold
    entries that `Held` does not contain yet.
    """

    def __init__(self, process: Isolation, held: Held) -> None:
        self._process = process
        self._held = held
        self._no_claim, self._has_claimed = asyncio.Event(), asyncio.Event()
        self._no_claim.set()
        self._has_claimed.set()

    def may_claim(self) -> bool:
        """Whether the source may claim entries. It may not while another source isolates one, but before that isolates the next one."""
        if self._process.isolating in (None, self):
            return True
        self._has_claimed.clear()
        return False

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Claim entries while the block runs. Its caller holds them before another task runs."""
        self._no_claim.clear()
        try:
            yield
        finally:
            self._no_claim.set()
            self._has_claimed.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[bool]:
        """Wait until the other sources hold and claim no redelivered entries. Yields False if another source isolates an entry now."""
        process = self._process
        await process.until_others(self, SourceIsolation._after_claim)
        if process.isolating is not None:
            yield False
            return
        process.isolating = self
        try:
            await process.until_others(self, SourceIsolation._without_redelivered)
            yield True
        finally:
            process.isolating = None

    async def _after_claim(self) -> None:
        """Wait until the source has claimed, if it could not while another one isolated an entry."""
        try:
            await self._has_claimed.wait()
        finally:
            self._has_claimed.set()  # waits only once for a source that does not read

    async def _without_redelivered(self) -> None:
        await self._no_claim.wait()
        await self._held.until_at_most(0, above=1)
